"""`evaluation.json`: everything that was measured of SAEs.

The file is the store: a result belongs to the hashes of an SAE's weights and config, and to the
name of an evaluation. It is written as a whole after each result.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from sae_lens import SAE

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import locked, write_json
from sae_lens_c2r.analysis.metrics import final_metrics, flat, is_finite
from sae_lens_c2r.evaluation.settings import CORE, EVALUATIONS
from sae_lens_c2r.models.reading import Reading
from sae_lens_c2r.reporting.tables import MetricTable, metric_table, short_names
from sae_lens_c2r.saes.hashes import sae_hashes
from sae_lens_c2r.saes.record import (
    SAE_LENS,
    WEIGHTS,
    Evaluation,
    SAERecord,
    as_document,
    read_document,
)
from sae_lens_c2r.saes.sae_ref import SAERef

REPORT_FILE = "evaluation.json"
_ASKED = ("model", "text", "settings", "inputs", "reading")  # what may change the numbers
_NOT_A_NUMBER = -1  # what SAEBench's core writes in place of NaN


class Task(BaseModel, frozen=True):
    """An evaluation of an SAE that is asked for."""

    name: str
    source: SAERef  # of the SAE, from the root
    sae: SAERecord  # without evaluations
    reading: Reading  # of the model that is asked for
    asked: Evaluation  # without metrics

    @property
    def title(self) -> str:
        """The evaluation's name where it is shown."""
        return f"{self.name} of {self.sae.name}"

    def load(self) -> SAE[Any]:
        """Load the SAE; a UserError if it is not the one that was asked for."""
        sae = self.source.load_for_inference(str(self.asked.device))
        if sae_hashes(sae) != (self.sae.weights_sha256, self.sae.config_sha256):
            raise UserError(f"{self.sae.name} has changed since the evaluation was planned.")
        return sae


class EvaluationReport(BaseModel, frozen=True):
    """The content of `evaluation.json`: its format, and the SAEs by name."""

    format: Literal[2] = 2
    saes: list[SAERecord]


def read_report(path: Path) -> EvaluationReport:
    """Read an `evaluation.json`; a UserError if it is none, or of another format."""
    return read_document(path, EvaluationReport, of="evaluate")


@dataclass
class Results:
    """The results in a folder, to which one process writes at a time."""

    out: Path
    _saes: dict[tuple[str | None, ...], SAERecord]

    @classmethod
    @contextmanager
    def locked(cls, out: Path) -> Iterator["Results"]:
        """Read the results in a folder, and keep other processes from writing to it."""
        out.mkdir(parents=True, exist_ok=True)
        with locked(out / ".lock", otherwise=UserError("out", "not be in use", out)):
            results = cls(out, {})
            if (out / REPORT_FILE).is_file():
                for sae in read_report(out / REPORT_FILE).saes:
                    results._saes[_hashes(sae)] = sae
            yield results

    def has(self, sae: SAERecord, name: str, asked: Evaluation) -> bool:
        """Whether an evaluation was done as it is asked for."""
        known = self._saes.get(_hashes(sae))
        held = known.evaluations.get(name) if known else None
        return held is not None and all(getattr(held, k) == getattr(asked, k) for k in _ASKED)

    def keep(self, sae: SAERecord, evaluations: Mapping[str, Evaluation]) -> None:
        """Write an SAE's evaluations, in place of earlier ones, by its name of today."""
        known = self._saes.get(_hashes(sae), sae).evaluations
        complete = sae.model_copy(update={"evaluations": {**known, **evaluations}})
        self._saes[_hashes(sae)] = complete
        self.write()

    def write(self) -> EvaluationReport:
        """Write `evaluation.json`."""
        saes = sorted(self._saes.values(), key=lambda sae: sae.name or "")
        report = EvaluationReport(saes=saes)
        write_json(self.out / REPORT_FILE, as_document(report))
        return report


def _hashes(sae: SAERecord) -> tuple[str | None, ...]:
    return sae.weights_sha256, sae.config_sha256


def table_of(report: EvaluationReport) -> MetricTable:
    """The table of what was measured; each metric is of the first evaluation that has it."""
    rows = [dict[str, float]() for _ in report.saes]
    # One evaluation to a column, as others count and average in other ways.
    for evaluation in (WEIGHTS, SAE_LENS, *EVALUATIONS):
        taken = {key for row in rows for key in row}
        for sae, row in zip(report.saes, rows, strict=True):
            found = sae.metrics_of(evaluation)
            row |= {key: found[key] for key in found if key not in taken}
    names = short_names([f"{sae.name}" for sae in report.saes])
    return metric_table(list(zip(names, rows, strict=True)))


def is_of_one_text(report: EvaluationReport) -> bool:
    """Whether all SAEs were measured on the same text, in the same settings."""
    measured = [(sae, sae.evaluations.get(SAE_LENS)) for sae in report.saes]
    ways = [(found.text or sae.dataset, found.settings) for sae, found in measured if found]
    return all(way == ways[0] for way in ways)


def metrics_of(
    evaluation: str, measured: Mapping[str, Any]
) -> tuple[dict[str, float], list[str]]:
    """The finite numbers of an evaluation, and the keys of the others."""
    numbers = flat(measured)
    if evaluation == CORE:
        numbers = {k: math.nan if v == _NOT_A_NUMBER else v for k, v in numbers.items()}
    metrics = final_metrics(evaluation, numbers)
    missing = [k for k, v in numbers.items() if type(v) in (int, float) and not is_finite(v)]
    return metrics, missing
