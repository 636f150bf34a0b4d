"""Everything that was measured of SAEs: `evaluation.json`, its files and its table.

It is gathered from these files, and can be at any time, without SAEBench:

    OUT/evaluation.json, evaluation.md
    OUT/SAE/EVALUATION-HASH/result.json   as SAEBench wrote it
    OUT/SAE/EVALUATION-HASH/about.json    what `evaluation.json` has of it
    OUT/SAE/EVALUATION-HASH/log.txt       what was printed
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, StrictFloat, StrictInt
from pydantic_core import from_json
from rich.table import Table

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import read_model
from sae_lens_c2r.evaluation.catalog import COLUMNS, EVALUATIONS, Column
from sae_lens_c2r.inspection.measures import INTERVALS, THRESHOLDS, Inspection
from sae_lens_c2r.reporting import tables

REPORT_FILE = "evaluation.json"
RESULT, ABOUT, LOG = "result.json", "about.json", "log.txt"
# Latents by their highest cosine, from this one to the next; the lowest has negative ones too.
_COSINES = [f"max_cosines_from_{i / INTERVALS:.2f}" for i in range(INTERVALS)]
_NOT_A_NUMBER = -1  # what SAEBench's core writes in place of NaN
_NOTES = {  # of columns that need one
    "explained variance": "Explained variance and L0: as SAELens computes them, or else "
    "SAEBench's core.",
    "composition": tables.explained("composition"),
    "co-firing": tables.explained("co-firing"),
    "features present": "Features: that are present, on average; dead: share of the latents.",
    "MCC": "MCC: mean cosine of features and latents, matched one to one; unique: features "
    "that some latent is the nearest to, by latents; precision, recall and F1: of latents as "
    "detectors of these.",
    "absorption by children": "Absorption: how much more often a parent's latent is silent "
    "beside a child than without, of the parents that were found, which have a latent of "
    "their own.",
    "absorption": "Absorption: mean absorption fraction.",
    "SCR": "SCR: with 20 latents.",
    "TPP": "TPP: with 20 latents.",
}
Number = StrictInt | StrictFloat


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Evaluation(_Record):
    """One evaluation of one SAE.

    Args:
        source: The result file, from the folder of `evaluation.json`.
        model: The language model; `None` for an evaluation of the weights alone.
        text: What SAELens's own evaluation reads; `None` for what the SAE was trained on.
        settings: The evaluation's settings, all of them.
        inputs: Files and folders that it reads, by what names them, each with its hash.
        device: Where it ran.
        versions: Versions of the packages that computed it.
        seconds: How long it took.
        metrics: The finite numbers, by their keys joined by dots.
        missing: The keys of those that are not finite.
    """

    source: str | None = None
    model: str | None = None
    text: str | None = None
    settings: dict[str, Any] = {}
    inputs: dict[str, str] = {}
    device: str | None = None
    versions: dict[str, str] = {}
    seconds: float | None = None
    metrics: dict[str, Number]
    missing: list[str] = []


class EvaluatedSAE(_Record):
    """One SAE, with the hashes of its weights and its config, and its evaluations by name."""

    weights_sha256: str
    config_sha256: str
    name: str
    architecture: str | None = None
    trained_as: str | None = None
    d_in: int | None = None
    d_sae: int | None = None
    evaluations: dict[str, Evaluation]


class EvaluationReport(_Record):
    """The content of `evaluation.json`: its format, and the SAEs by name."""

    format: Literal[1] = 1
    saes: list[EvaluatedSAE]


def read_report(path: Path) -> EvaluationReport:
    """Read an `evaluation.json`; a UserError if it is none, or of another format."""
    return read_model(path, EvaluationReport, written_by="`sae-lens-c2r evaluate`")


def read_about(folder: Path) -> EvaluatedSAE | None:
    """Read the SAE and its one evaluation of a folder; `None` if the folder has no result."""
    try:
        content = from_json((folder / ABOUT).read_bytes(), allow_inf_nan=False)
        return EvaluatedSAE.model_validate(content, strict=True)
    except (OSError, ValueError):
        return None


def gather(out: Path) -> EvaluationReport:
    """Join the results in a folder, without those that cannot be read."""
    saes: dict[str, EvaluatedSAE] = {}
    for path in sorted(out.glob(f"*/*/{ABOUT}")):
        about = read_about(path.parent)
        if about is not None:
            sae = saes.setdefault(path.parent.parent.name, about)
            sae.evaluations.update(about.evaluations)
    return EvaluationReport(saes=sorted(saes.values(), key=lambda sae: sae.name))


def read_metrics(path: Path, evaluation: str) -> tuple[dict[str, float], list[str]]:
    """Read a result file: its finite numbers, and the keys of the others."""
    try:
        content = json.loads(path.read_bytes())
        metrics, found_id = content["eval_result_metrics"], content["eval_type_id"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} should be a result of SAEBench's. {type(error).__name__}: {error}"
        ) from None
    theirs = EVALUATIONS.get(evaluation)
    if found_id != ((theirs and theirs.type_id) or evaluation):
        raise UserError(f"{path} should be a result of {evaluation}. Found {found_id}.")
    finite: dict[str, float] = {}
    missing: list[str] = []
    for key, value in _flat(metrics):
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue  # None: not asked for
        swallowed = evaluation == "core" and value == _NOT_A_NUMBER
        if swallowed or not -sys.float_info.max <= value <= sys.float_info.max:
            missing.append(key)
        else:
            finite[key] = value
    if not finite:
        raise UserError(f"{path} should have a finite number. Found none.")
    return finite, missing


def _flat(values: Any, *keys: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(values, dict):
        yield ".".join(keys), values
        return
    for key, value in values.items():
        yield from _flat(value, *keys, str(key))


def weights_metrics(inspection: Inspection) -> dict[str, float]:
    """The metrics of an SAE's weights, as `inspect` measures them."""
    pairs = zip(THRESHOLDS, inspection.pairs, strict=True)
    return {
        "composition": inspection.composition,
        "chance_composition": inspection.chance_composition,
        **{f"pairs_above_{threshold}": count for threshold, count in pairs},
        "zero_decoder_rows": inspection.zero_rows,
        **dict(zip(_COSINES, inspection.cosine_counts, strict=True)),
    }


def max_cosine_counts(metrics: Mapping[str, float]) -> list[float] | None:
    """The latents by their highest cosine, as `weights_metrics` has them, if it has all."""
    return [metrics[key] for key in _COSINES] if metrics.keys() >= set(_COSINES) else None


def terminal_tables(report: EvaluationReport, *, width: int = 80) -> list[Table]:
    """Tables for `rich` to print, so many as the columns need in a terminal of that width."""
    columns, rows, note = _table(report)
    headings = [f"{column.heading}\n{column.arrow.strip()}".rstrip() for column in columns]
    return tables.fitting_tables(["SAE", *headings], rows, width=width, note=note)


def markdown_table(report: EvaluationReport) -> str:
    """The table in Markdown, with the note under it."""
    columns, rows, note = _table(report)
    headings = [f"{column.title}{column.arrow}" for column in columns]
    rows = [[name.replace("|", "\\|"), *cells] for name, *cells in rows]
    return f"{tables.markdown_table(['SAE', *headings], rows)}\n\n{note}\n"


def _table(report: EvaluationReport) -> tuple[list[Column], list[list[str]], str]:
    """The columns that any SAE has a number in, the rows, and the note on them."""
    cells = [_cells(sae) for sae in report.saes]
    by_title = {column.title: column for column in COLUMNS}
    columns = [by_title[title] for title in by_title if any(title in each for each in cells)]
    names = [sae.name for sae in report.saes]
    rows = []
    for sae, of_sae in zip(report.saes, cells, strict=True):
        alone = names.count(sae.name) == 1
        name = sae.name if alone else f"{sae.name} ({sae.weights_sha256[:8]})"
        rows.append([name, *(of_sae.get(column.title, "") for column in columns)])
    titles = [column.title for column in columns]
    return columns, rows, " ".join(note for title, note in _NOTES.items() if title in titles)


def _cells(sae: EvaluatedSAE) -> dict[str, str]:
    """An SAE's numbers, by the titles of their columns."""
    cells: dict[str, str] = {}
    for column in COLUMNS:
        evaluation = sae.evaluations.get(column.evaluation)
        value = evaluation.metrics.get(column.metric) if evaluation else None
        if value is not None:
            cells.setdefault(column.title, format(value, column.shown))
    return cells
