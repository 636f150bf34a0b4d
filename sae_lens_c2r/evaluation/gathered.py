"""Everything that was measured of SAEs: `evaluation.json`."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, StrictFloat, StrictInt

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.reading import read_model
from sae_lens_c2r.evaluation.about import About
from sae_lens_c2r.evaluation.results import ABOUT, RESULT, read_about, read_metrics

GATHERED = "evaluation.json"
Number = StrictInt | StrictFloat


class _Gathered(BaseModel):
    model_config = ConfigDict(frozen=True)


class EvaluationOfSAE(_Gathered):
    """One evaluation of one SAE.

    Args:
        source: The result file, from the folder of `evaluation.json`.
        model: The language model; `None` for an evaluation of the weights alone.
        text: What SAELens's own evaluation read; `None` for what the SAE was trained on.
        settings: The evaluation's settings.
        inputs: Files and folders that it read, each with a fingerprint.
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


class EvaluatedSAE(_Gathered):
    """One SAE and its evaluations.

    Args:
        weights_sha256: Which weights, see `sae_lens_c2r.evaluation.identity`.
        config_sha256: With which config.
        name: What the SAE is called where it is shown.
        architecture: SAELens's name of its form.
        trained_as: SAELens's name of what it was trained as, where that is known.
        d_in: Dimension of its inputs.
        d_sae: Its latents.
        evaluations: Its evaluations by name.
    """

    weights_sha256: str
    config_sha256: str
    name: str
    architecture: str | None = None
    trained_as: str | None = None
    d_in: int | None = None
    d_sae: int | None = None
    evaluations: dict[str, EvaluationOfSAE]


class Gathered(_Gathered):
    """What `evaluation.json` holds.

    Args:
        format: Of the file.
        saes: The SAEs, by name.
    """

    format: Literal[1] = 1
    saes: list[EvaluatedSAE]


def gather(out: Path) -> Gathered:
    """Everything that has been computed.

    Args:
        out: The folder of the evaluations.

    Returns:
        The SAEs, each with its evaluations. What cannot be read is left out: it is run again
        when it is asked for.
    """
    found: dict[str, tuple[About, dict[str, EvaluationOfSAE]]] = {}
    for folder in sorted(path.parent for path in out.glob(f"*/*/{ABOUT}")):
        about = read_about(folder)
        if about is None:
            continue
        try:
            evaluation = _evaluation(about, folder / RESULT, out)
        except UserError:
            continue
        _, of_sae = found.setdefault(folder.parent.name, (about, {}))
        of_sae[about.asked.evaluation] = evaluation
    saes = [_of_sae(about, evaluations) for about, evaluations in found.values()]
    return Gathered(saes=sorted(saes, key=lambda sae: sae.name))


def read_gathered(path: Path) -> Gathered:
    """What an `evaluation.json` holds.

    Args:
        path: The file.

    Returns:
        Its content.

    Raises:
        UserError: If it is no such file, or of another format.
    """
    return read_model(path, Gathered, written_by="`sae-lens-c2r evaluate`")


def _evaluation(about: About, result: Path, out: Path) -> EvaluationOfSAE:
    asked = about.asked
    metrics, missing = read_metrics(result, asked.evaluation)
    return EvaluationOfSAE(
        source=result.relative_to(out).as_posix(),
        model=asked.model,
        text=asked.text,
        settings=asked.settings,
        inputs=asked.inputs,
        device=about.device,
        versions=about.versions,
        seconds=about.seconds,
        metrics=metrics,
        missing=missing,
    )


def _of_sae(about: About, evaluations: dict[str, EvaluationOfSAE]) -> EvaluatedSAE:
    return EvaluatedSAE(
        weights_sha256=about.asked.weights_sha256,
        config_sha256=about.asked.config_sha256,
        name=about.name,
        architecture=about.architecture,
        trained_as=about.trained_as,
        d_in=about.d_in,
        d_sae=about.d_sae,
        evaluations=evaluations,
    )
