"""Everything that was measured of SAEs: `evaluation.json`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, StrictFloat, StrictInt

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.reading import read_model
from sae_lens_c2r.evaluation.results import ABOUT, RESULT, read_about, read_metrics
from sae_lens_c2r.inspection.measures import INTERVALS, THRESHOLDS, Inspection

REPORT_FILE = "evaluation.json"
_COSINES = "max_cosines_from_"
Number = StrictInt | StrictFloat


class _Gathered(BaseModel):
    model_config = ConfigDict(frozen=True)


class Evaluation(_Gathered):
    """One evaluation of one SAE: what `About` and `Asked` say of it, and its numbers.

    Args:
        source: The result file, from the folder of `evaluation.json`.
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


class EvaluatedSAE(_Gathered):
    """One SAE, of which `About` and `Asked` say the same, and its evaluations by name."""

    weights_sha256: str
    config_sha256: str
    name: str
    architecture: str | None = None
    trained_as: str | None = None
    d_in: int | None = None
    d_sae: int | None = None
    evaluations: dict[str, Evaluation]


class EvaluationReport(_Gathered):
    """What `evaluation.json` holds.

    Args:
        format: Of the file.
        saes: The SAEs, by name.
    """

    format: Literal[1] = 1
    saes: list[EvaluatedSAE]


def gather(out: Path) -> EvaluationReport:
    """Everything that has been computed.

    Args:
        out: The folder of the evaluations.

    Returns:
        The SAEs, each with its evaluations. What cannot be read is left out: it is run again
        when it is asked for.
    """
    saes: dict[str, EvaluatedSAE] = {}
    for folder in sorted(path.parent for path in out.glob(f"*/*/{ABOUT}")):
        about = read_about(folder)
        if about is None:
            continue
        evaluation, result = about.asked.evaluation, folder / RESULT
        try:
            metrics, missing = read_metrics(result, evaluation)
        except UserError:
            continue
        said = {**about.model_dump(), **about.asked.model_dump()}
        sae = saes.setdefault(folder.parent.name, EvaluatedSAE(**said, evaluations={}))
        sae.evaluations[evaluation] = Evaluation(
            **said,
            source=result.relative_to(out).as_posix(),
            metrics=metrics,
            missing=missing,
        )
    return EvaluationReport(saes=sorted(saes.values(), key=lambda sae: sae.name))


def read_report(path: Path) -> EvaluationReport:
    """What an `evaluation.json` holds.

    Returns:
        Its content.

    Raises:
        UserError: If it is no such file, or of another format.
    """
    return read_model(path, EvaluationReport, written_by="`sae-lens-c2r evaluate`")


def weights_metrics(inspection: Inspection) -> dict[str, float]:
    """The metrics of an SAE's weights, as `inspect` measures them."""
    return {
        "composition": inspection.composition,
        "chance_composition": inspection.chance_composition,
        **{
            f"pairs_above_{threshold}": pairs
            for threshold, pairs in zip(THRESHOLDS, inspection.pairs, strict=True)
        },
        "zero_decoder_rows": inspection.zero_rows,
        **{  # from this cosine to the next; the lowest includes negative ones
            f"{_COSINES}{i / INTERVALS:.2f}": count
            for i, count in enumerate(inspection.cosine_counts)
        },
    }


def max_cosine_counts(metrics: Mapping[str, float]) -> list[float] | None:
    """The latents by their highest cosine, as `weights_metrics` has them, if it has all."""
    counts = [metrics.get(f"{_COSINES}{i / INTERVALS:.2f}") for i in range(INTERVALS)]
    found = [count for count in counts if count is not None]
    return found if len(found) == INTERVALS else None
