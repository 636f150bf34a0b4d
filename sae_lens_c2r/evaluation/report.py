"""Everything that was measured of SAEs: `evaluation.json`, its files and its table.

It is gathered from these files, and can be at any time, without SAEBench:

    OUT/evaluation.json, evaluation.md
    OUT/SAE/EVALUATION-HASH/result.json   as SAEBench wrote it
    OUT/SAE/EVALUATION-HASH/about.json    what `evaluation.json` has of it
    OUT/SAE/EVALUATION-HASH/log.txt       what was printed
    OUT/.probes                           of absorption, until the command has run everything
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, StrictFloat, StrictInt
from pydantic_core import from_json
from rich.table import Table
from sae_lens import SAE

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import read_model, write_json, write_text
from sae_lens_c2r.evaluation.catalog import COLUMNS, EVALUATIONS, Column
from sae_lens_c2r.inspection.measures import INTERVALS, flat, measure
from sae_lens_c2r.reporting import tables

REPORT_FILE, TABLE = "evaluation.json", "evaluation.md"
RESULT, ABOUT, LOG, PROBES = "result.json", "about.json", "log.txt", ".probes"
# Latents by their highest cosine, from this one to the next; the lowest has negative ones too.
_COSINES = [f"max_cosines_from_{i / INTERVALS:.2f}" for i in range(INTERVALS)]
# Of an SAE's metadata, what decides which activations it is given.
_READ = (
    *("model_class_name", "model_from_pretrained_kwargs", "hook_name", "hook_head_index"),
    *("dataset_path", "context_size", "prepend_bos", "seqpos_slice", "exclude_special_tokens"),
    *("sequence_separator_token", "disable_concat_sequences"),
)
_NOT_A_NUMBER = -1  # what SAEBench's core writes in place of NaN
Number = StrictInt | StrictFloat


class Evaluation(BaseModel, frozen=True, allow_inf_nan=False):
    """One evaluation of one SAE."""

    source: str | None = None  # the result file, from the folder of `evaluation.json`
    model: str | None = None  # `None` for an evaluation of the weights alone
    text: str | None = None  # that SAELens's reads; `None` for what the SAE was trained on
    settings: dict[str, Any] = {}  # all of them
    inputs: dict[str, str] = {}  # the hashes of the files and folders that it reads, by name
    device: str | None = None
    versions: dict[str, str] = {}  # of the packages that computed it
    seconds: float | None = None
    metrics: dict[str, Number]  # the finite numbers, by their keys joined by dots
    missing: list[str] = []  # the keys of the others


class EvaluatedSAE(BaseModel, frozen=True):
    """One SAE, with the hashes of its weights and its config, and its evaluations by name."""

    weights_sha256: str
    config_sha256: str
    name: str
    architecture: str | None = None
    trained_as: str | None = None
    d_in: int | None = None
    d_sae: int | None = None
    evaluations: dict[str, Evaluation]


class EvaluationReport(BaseModel, frozen=True):
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


def write_report(out: Path) -> EvaluationReport:
    """Join the results in a folder, without those that cannot be read, and write them."""
    saes: dict[str, EvaluatedSAE] = {}
    for path in sorted(out.glob(f"*/*/{ABOUT}")):
        about = read_about(path.parent)
        if about is not None:
            sae = saes.setdefault(path.parent.parent.name, about)
            sae.evaluations.update(about.evaluations)
    report = EvaluationReport(saes=sorted(saes.values(), key=lambda sae: sae.name))
    write_json(out / REPORT_FILE, report.model_dump(mode="json"))
    write_text(out / TABLE, markdown_table(report))
    return report


def sae_hashes(sae: SAE[Any]) -> tuple[str, str]:
    """Hash weights and what of the config decides the function and what it is measured on."""
    weights = sha256()
    for name, tensor in sorted(sae.state_dict().items()):
        weights.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        weights.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    # Defaults are left out: a later SAELens has more of them.
    usual = {field.name: field.default for field in fields(sae.cfg)} | {"device": None}
    said = {"architecture": sae.cfg.architecture(), **sae.cfg.to_dict()}
    config = {key: said[key] for key in said.keys() - {"metadata", "device"}}
    config = {key: value for key, value in config.items() if usual.get(key, ...) != value}
    read = {key: value for key in _READ if (value := sae.cfg.metadata.get(key)) is not None}
    return weights.hexdigest(), _digest({**config, "metadata": read})


def earlier_config_hash(sae: SAE[Any]) -> str:
    """Hash a config as before, with all that its metadata say: older files have that."""
    config = sae.cfg.to_dict()
    config.pop("device", None)
    config["metadata"].pop("sae_lens_version", None)
    return _digest(config)


def _digest(config: dict[str, Any]) -> str:
    return sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()


def read_metrics(path: Path, evaluation: str) -> tuple[dict[str, float], list[str]]:
    """Read a result file: its finite numbers, and the keys of the others."""
    try:
        content = json.loads(path.read_bytes())
        metrics, found_id = flat(content["eval_result_metrics"]), content["eval_type_id"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} should be a result of SAEBench. {type(error).__name__}: {error}"
        ) from None
    theirs = EVALUATIONS.get(evaluation)
    if found_id != ((theirs and theirs.type_id) or evaluation):
        raise UserError(f"{path} should be a result of {evaluation}. Found {found_id}.")
    finite: dict[str, float] = {}
    missing: list[str] = []
    for key, value in metrics.items():
        if type(value) not in (int, float):
            continue  # None: not asked for
        swallowed = evaluation == "core" and value == _NOT_A_NUMBER
        if swallowed or not -sys.float_info.max <= value <= sys.float_info.max:
            missing.append(key)
        else:
            finite[key] = value
    if not finite:
        raise UserError(f"{path} should have a finite number. Found none.")
    return finite, missing


def weights_metrics(sae: SAE[Any], name: str) -> dict[str, float]:
    """Measure an SAE's weights, as `inspect` does."""
    report = measure(sae, name)
    return {
        "composition": report.numbers["composition"],
        "chance_composition": report.numbers["chance_composition"],
        "pairs_above_0.9": report.numbers["pairs_above_0_9"],
        "pairs_above_0.7": report.numbers["pairs_above_0_7"],
        "zero_decoder_rows": report.zero_rows,
        **dict(zip(_COSINES, report.cosine_counts, strict=True)),
    }


def max_cosine_counts(metrics: Mapping[str, float]) -> list[float] | None:
    """The latents by their highest cosine, as `weights_metrics` has them, if it has all."""
    return [metrics[key] for key in _COSINES] if metrics.keys() >= set(_COSINES) else None


def terminal_tables(report: EvaluationReport, *, width: int = 80) -> list[Table]:
    """Tables for `rich` to print, so many as the columns need in a terminal of that width."""
    columns, rows, note = _table(report)
    headings = [f"{column.heading}\n{column.arrow.strip()}".rstrip() for column in columns]
    return tables.terminal_tables(["SAE", *headings], rows, width=width, note=note)


def markdown_table(report: EvaluationReport) -> str:
    """The table in Markdown, with the note under it."""
    columns, rows, note = _table(report)
    headings = [f"{column.title}{column.arrow}" for column in columns]
    rows = [[name.replace("|", "\\|"), *cells] for name, *cells in rows]
    return f"{tables.markdown_table(['SAE', *headings], rows)}\n\n{note}\n"


def _table(report: EvaluationReport) -> tuple[list[Column], list[list[str]], str]:
    """The columns that any SAE has a number in, the rows, and the note on them."""
    by_title = {column.title: column for column in COLUMNS}
    names = [sae.name for sae in report.saes]
    all_cells = []
    for sae in report.saes:
        is_alone = names.count(sae.name) == 1
        cells = {"SAE": sae.name if is_alone else f"{sae.name} ({sae.weights_sha256[:8]})"}
        for column in COLUMNS:
            evaluation = sae.evaluations.get(column.evaluation)
            if evaluation and column.metric in evaluation.metrics:
                value = evaluation.metrics[column.metric]
                cells.setdefault(column.title, format(value, column.shown))
        all_cells.append(cells)
    titles = [title for title in by_title if any(title in cells for cells in all_cells)]
    rows = [[cells.get(title, "") for title in ("SAE", *titles)] for cells in all_cells]
    note = tables.explained(*(title for title in titles if title in tables.GLOSSARY))
    return [by_title[title] for title in titles], rows, note
