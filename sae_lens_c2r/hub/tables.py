"""The tables of a card. Every number in them is of an evaluation, by its name and key."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

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
from sae_lens_c2r.hub.facts import Evaluation, RepoFacts, SAEFacts
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


class CardNumber(NamedTuple):
    """A number of a card: of one SAE, in one column."""

    sae_id: str
    column: Column
    evaluation: Evaluation
    value: float


def card_numbers(facts: RepoFacts) -> Iterator[CardNumber]:
    """Yield the numbers of a card, SAE by SAE."""
    for sae_id, sae in facts.saes.items():
        for column in CARD_COLUMNS:
            evaluation = sae.evaluations.get(column.evaluation)
            if evaluation and column.metric in evaluation.metrics:
                yield CardNumber(sae_id, column, evaluation, evaluation.metrics[column.metric])


def sae_table(facts: RepoFacts) -> str:
    """Write, in Markdown, which SAEs there are, and what each was trained as."""
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


def measurement_table(facts: RepoFacts) -> str:
    """Write, in Markdown, what was measured of each SAE; nothing if nothing was."""
    shown = {
        (each.sae_id, each.column): format(each.value, each.column.shown)
        for each in card_numbers(facts)
    }
    columns = [each for each in CARD_COLUMNS if any(each == column for _, column in shown)]
    if not columns:
        return ""
    head = ["SAE", *(column.title + column.arrow for column in columns)]
    rows = [
        [f"`{sae_id}`", *(shown.get((sae_id, column), "") for column in columns)]
        for sae_id in facts.saes
    ]
    return markdown_table(head, rows)


def text(value: Any) -> str:
    """Show a value that is no markup where it stands, in a cell of a table, too."""
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    for sign in "\\`*_|[]<>":
        shown = shown.replace(sign, f"\\{sign}")
    return printable(" ".join(shown.split()))


def code(value: Any) -> str:
    """Show a value that is no markup between backticks, in a cell of a table, too."""
    shown = re.sub(r"[`|<>]", "'", str(value))
    return printable(" ".join(shown.split()))


def printable(text: str) -> str:
    """Keep the printable characters and ends of lines: none that a terminal obeys."""
    return "".join(sign for sign in text if sign.isprintable() or sign == "\n")


def _penalties(sae: SAEFacts) -> str:
    coefficients = {
        name: sae.options.get(f"{prefix}_coefficient") for name, prefix in PENALTIES.items()
    }
    return ", ".join(
        f"{name} {text(value)}" for name, value in coefficients.items() if value is not None
    )
