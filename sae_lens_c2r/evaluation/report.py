"""Everything that was measured of SAEs: `evaluation.json`, its files and its table.

It is gathered from these files, and can be at any time, without SAEBench. What it has of
folders that are not there, as it was copied without them, stays:

    OUT/evaluation.json, evaluation.md
    OUT/SAE/EVALUATION-HASH/result.json   as SAEBench wrote it
    OUT/SAE/EVALUATION-HASH/about.json    what `evaluation.json` has of it
    OUT/SAE/EVALUATION-HASH/log.txt       what was printed
"""

import json
import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel
from pydantic_core import from_json

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import write_json, write_text
from sae_lens_c2r.analysis.metrics import final_metrics, flat, is_finite
from sae_lens_c2r.evaluation.catalog import EVALUATIONS
from sae_lens_c2r.reporting.tables import MetricTable, metric_table
from sae_lens_c2r.saes.record import (
    SAE_LENS,
    WEIGHTS,
    SAERecord,
    as_document,
    parsed,
    read_document,
)

REPORT_FILE, TABLE = "evaluation.json", "evaluation.md"
RESULT, ABOUT, LOG = "result.json", "about.json", "log.txt"
_END_OF_LOG = 2000  # bytes
_NOT_A_NUMBER = -1  # what SAEBench's core writes in place of NaN


def _evaluated(sae: SAERecord) -> SAERecord:
    if None in (sae.name, sae.weights_sha256, sae.config_sha256):
        raise ValueError("it should have a name and two hashes")
    return sae


class EvaluationReport(BaseModel, frozen=True):
    """The content of `evaluation.json`: its format, and the SAEs by name."""

    format: Literal[2] = 2
    saes: list[Annotated[SAERecord, AfterValidator(_evaluated)]]


def read_report(path: Path) -> EvaluationReport:
    """Read an `evaluation.json`; a UserError if it is none, or of another format."""
    return read_document(path, EvaluationReport, of="evaluate")


def read_about(folder: Path) -> SAERecord | None:
    """Read the SAE and its one evaluation of a folder; `None` if the folder has no result."""
    try:
        content = from_json((folder / ABOUT).read_bytes(), allow_inf_nan=False)
        return _evaluated(parsed(content, SAERecord, folder / ABOUT, of="evaluate"))
    except (OSError, ValueError):
        return None


def check_replaceable(out: Path) -> None:
    """Raise a UserError for files of another program that `write_report` would replace."""
    if (out / REPORT_FILE).is_file():
        read_report(out / REPORT_FILE)
    elif (out / TABLE).is_file() and not (out / TABLE).read_bytes().startswith(b"| SAE"):
        raise UserError("out", f"have no {TABLE} of another program", out / TABLE)


def write_report(out: Path) -> EvaluationReport:
    """Join the results in a folder, without those that cannot be read, and write them."""
    saes: dict[str, SAERecord] = {}
    with suppress(UserError):  # there is none
        for known in read_report(out / REPORT_FILE).saes:
            for name, each in known.evaluations.items():
                home = (each.source or "").partition("/")[0]
                if not (out / home).is_dir():  # the file was copied here without it
                    sae = saes.setdefault(home, known.model_copy(update={"evaluations": {}}))
                    sae.evaluations[name] = each
    for path in sorted(out.glob(f"*/*/{ABOUT}")):
        if about := read_about(path.parent):
            sae = saes.setdefault(path.parent.parent.name, about)
            sae.evaluations.update(about.evaluations)
    report = EvaluationReport(saes=sorted(saes.values(), key=lambda sae: sae.name or ""))
    write_json(out / REPORT_FILE, as_document(report))
    table = table_of(report, escape=True)
    write_text(out / TABLE, f"{table.in_markdown()}\n\n{table.note}\n")
    return report


def table_of(report: EvaluationReport, *, escape: bool = False) -> MetricTable:
    """The table of what was measured; each metric is of the first evaluation that has it."""
    names, rows = [sae.name for sae in report.saes], [dict[str, float]() for _ in report.saes]
    # One evaluation to a column, as others count and average in other ways.
    for either in ((WEIGHTS,), (SAE_LENS,), *((name,) for name in EVALUATIONS)):
        taken = {key for row in rows for key in row}
        for sae, row in zip(report.saes, rows, strict=True):
            for evaluation in reversed(either):
                found = sae.metrics_of(evaluation)
                row |= {key: found[key] for key in found if key not in taken}
    saes = []
    for sae, row in zip(report.saes, rows, strict=True):
        is_alone = names.count(sae.name) == 1
        name = f"{sae.name}" if is_alone else f"{sae.name} ({str(sae.weights_sha256)[:8]})"
        saes.append((name.replace("|", "\\|") if escape else name, row))
    return metric_table(saes)


def last_line(out: Path, *, since: float) -> str:
    """The last line of the log that was last written `since` a time, often a bar."""
    with suppress(OSError, ValueError):  # a log that is gone, and none so far
        logs = {path.stat().st_mtime: path for path in out.glob(f"*/*/{LOG}")}
        log = logs[max(when for when in logs if when >= since)]
        with log.open("rb") as file:
            file.seek(-min(log.stat().st_size, _END_OF_LOG), os.SEEK_END)
            lines = file.read().decode("utf-8", errors="ignore").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
    return ""


def read_metrics(path: Path, evaluation: str) -> tuple[dict[str, float], list[str]]:
    """Read a result file: its finite numbers, and the keys of the others."""
    try:
        content = json.loads(path.read_bytes())
        numbers, found_id = flat(content["eval_result_metrics"]), content["eval_type_id"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise UserError(path, "be a result of SAEBench", more=cause) from None
    theirs = EVALUATIONS.get(evaluation)
    if found_id != ((theirs and theirs.type_id) or evaluation):
        raise UserError(path, f"be a result of {evaluation}", found_id)
    if evaluation == "core":
        numbers = {k: math.nan if v == _NOT_A_NUMBER else v for k, v in numbers.items()}
    metrics = final_metrics(evaluation, numbers)
    if not metrics:
        raise UserError(path, "have a finite number", "none")
    missing = [k for k, v in numbers.items() if type(v) in (int, float) and not is_finite(v)]
    return metrics, missing
