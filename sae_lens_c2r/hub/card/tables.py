"""The tables of a card. Every number in them is of an evaluation, by its name and key."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sae_lens_c2r.analysis.cofiring import JACCARDS
from sae_lens_c2r.evaluation.catalog import (
    CO_FIRING,
    COLUMNS,
    EXPLAINED_VARIANCE,
    HELD_OUT,
    L0,
    SAE_LENS,
    TRAINING,
    WEIGHTS,
    Column,
)
from sae_lens_c2r.hub.card.facts import Evaluation, Facts, SAEFacts
from sae_lens_c2r.releases.model import Release
from sae_lens_c2r.reporting.tables import markdown_table

_NAMES = {SAE_LENS: "SAELens", "core": "SAEBench"}
# What SAELens and SAEBench both measure, by the names that they share.
_SHARED = (
    ("explained variance", EXPLAINED_VARIANCE, 1, ".3f"),
    ("L0", L0, 0, ".1f"),
    ("loss recovered", "model_performance_preservation.ce_loss_score", 1, ".3f"),
)
# The chance level of composition stands where it is said how that was measured.
_ELSEWHERE = ("chance_composition", *(metric for _, metric, _, _ in _SHARED))
_COUNT, _PAIRS = ",.0f", f"{CO_FIRING}.pairs_above"
_HELD_OUT = (
    Column("explained variance (held out)", "", HELD_OUT, "explained_variance", 1),
    Column("L0 (held out)", "", HELD_OUT, "l0", 0, ".1f"),
    Column("dead latents (held out)", "", HELD_OUT, "dead_latents", -1, _COUNT),
    Column("co-firing (held out)", "", HELD_OUT, f"{CO_FIRING}.highest_jaccard", -1),
)
CARD_COLUMNS = (
    *_HELD_OUT,  # before what was measured on text that was trained on
    *(
        Column(f"{title} ({name})", "", evaluation, metric, better, shown)
        for evaluation, name in _NAMES.items()
        for title, metric, better, shown in _SHARED
    ),
    *(column for column in COLUMNS if column.metric not in _ELSEWHERE),
    Column("dead latents (training)", "", TRAINING, "dead_latents", -1, _COUNT),
    Column("pairs > 0.9", "", WEIGHTS, "pairs_above_0.9", -1, _COUNT),
    Column("pairs > 0.7", "", WEIGHTS, "pairs_above_0.7", -1, _COUNT),
    Column("co-firing by chance", "", SAE_LENS, f"{CO_FIRING}.chance", 0),
    *(
        Column(f"co-firing pairs > {above}", "", SAE_LENS, f"{_PAIRS}_{above}", -1, _COUNT)
        for above in JACCARDS
    ),
)
PENALTIES = {"C2R": "c2r", "OrtSAE": "ort"}  # and the prefix of their options


@dataclass(frozen=True)
class CardNumber:
    """A number of a card.

    Args:
        sae_id: Of which SAE.
        column: In which column.
        evaluation: Of which evaluation.
        value: The number.
    """

    sae_id: str
    column: Column
    evaluation: Evaluation
    value: float

    @property
    def shown(self) -> str:
        """As the table has it."""
        return format(self.value, self.column.shown)


def card_numbers(facts: Facts) -> Iterator[CardNumber]:
    """The numbers of a card, SAE by SAE."""
    for sae_id, sae in facts.saes.items():
        for column in CARD_COLUMNS:
            evaluation = sae.evaluations.get(column.evaluation)
            if evaluation and column.metric in evaluation.metrics:
                yield CardNumber(sae_id, column, evaluation, evaluation.metrics[column.metric])


def sae_table(facts: Facts) -> str:
    """Which SAEs there are, and what each was trained as: a table in Markdown."""
    rows = [
        [
            f"`{sae_id}`",
            f"`{code(sae.trained_as or sae.architecture)}`",
            _penalties(sae),
            f"{sae.d_sae:,}",
            text(sae.options.get("k", "")),
            text(sae.dtype or ""),
        ]
        for sae_id, sae in facts.saes.items()
    ]
    headings = ["SAE", "architecture", "penalties", "latents", "k", "dtype"]
    return markdown_table(headings, rows, text=range(3))


def planned_table(release: Release) -> str:
    """Which SAEs a release is going to have: a table in Markdown."""
    rows = [
        [
            f"`{spec.sae_id}`",
            f"`{spec.fields['architecture']}`",
            f"{spec.fields.get('d_sae', 0):,}",
            text(spec.fields.get("k", "")),
        ]
        for spec in release.saes()
    ]
    return markdown_table(["SAE", "architecture", "latents", "k"], rows, text=range(2))


def measurement_table(facts: Facts) -> str:
    """What was measured of each SAE, in Markdown; empty if nothing was."""
    numbers = {(each.sae_id, each.column): each.shown for each in card_numbers(facts)}
    columns = [each for each in CARD_COLUMNS if any(each == column for _, column in numbers)]
    if not columns:
        return ""
    head = ["SAE", *(column.title + column.arrow for column in columns)]
    rows = [
        [f"`{sae_id}`", *(numbers.get((sae_id, column), "") for column in columns)]
        for sae_id in facts.saes
    ]
    return markdown_table(head, rows)


def text(value: Any) -> str:
    """A value that is no markup where it stands, in a cell of a table, too."""
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    for sign in "\\`*_|[]<>":
        shown = shown.replace(sign, f"\\{sign}")
    return printable(" ".join(shown.split()))


def code(value: Any) -> str:
    """A value that is no markup between backticks, in a cell of a table, too."""
    shown = re.sub(r"[`|<>]", "'", str(value))
    return printable(" ".join(shown.split()))


def printable(text: str) -> str:
    """The printable characters and ends of lines of a text: none that a terminal obeys."""
    return "".join(sign for sign in text if sign.isprintable() or sign == "\n")


def _penalties(sae: SAEFacts) -> str:
    parts = []
    for name, prefix in PENALTIES.items():
        coefficient = sae.options.get(f"{prefix}_coefficient")
        if coefficient is not None:
            parts.append(f"{name} {text(coefficient)}")
    return ", ".join(parts)
