"""The record that reproduces a training: `training.json`, beside the weights."""

import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict

from sae_lens_c2r._support.files import read_model
from sae_lens_c2r._support.libraries import package_versions
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.plan import Plan

RECORD = "training.json"


class _Recorded(BaseModel):
    # Every key may be missing, and others may be there: anybody's file may have that name.
    model_config = ConfigDict(extra="allow", frozen=True)


class RecordedModel(_Recorded):
    """The language model, as of `sae_lens_c2r.releases.model.LanguageModel`."""

    hub_id: str | None = None
    dataset: str | None = None
    context_size: int | None = None


class RecordedFeatures(_Recorded):
    """The known features, as of `sae_lens_c2r.releases.model.SyntheticModel`."""

    config: dict[str, Any] = {}


class RecordedRelease(_Recorded):
    """The release, as of `sae_lens_c2r.releases.model.Release`."""

    description: str | None = None
    license: str | None = None
    repo_id: str | None = None
    language_model: RecordedModel | None = None
    synthetic_model: RecordedFeatures | None = None


class RecordedMeasures(_Recorded):
    """Measurements of an SAE on text that was held out of its training.

    Args:
        text: What the text is called.
        n_tokens: How much of it there was.
        metrics: The numbers, by their keys joined by dots.
    """

    text: str | None = None
    n_tokens: int | None = None
    metrics: dict[str, float] = {}


class TrainingRecord(_Recorded):
    """The training of one SAE.

    Args:
        release: The release that it is of, whole.
        sae_id: Which SAE of the release.
        started_from: The SAE that it started from, if it did not begin at random.
        settings: All that another training would have to share with this one.
        trained_together: The SAEs that were trained beside it, and it.
        processes_per_batch: Processes that each batch was split over, so that the weights are
            not those of one process to the bit; the most of them, where a run was continued
            with another number.
        steps: Training steps.
        samples: Tokens in all, or samples of known features.
        seconds: How long the SAEs that were trained together took.
        samples_per_second: Samples by seconds.
        evaluation: SAELens's evaluation against known features, if there are any.
        held_out: What was measured on held-out text, if there was any.
        finished: When it was, in UTC.
        matmul_precision: Torch's name of the precision of products of float32 matrices.
        device: Where it ran.
        python: Python's version.
        versions: Versions of the packages.
        git_revision: The commit of the checkout that it ran from, if it was one.
    """

    release: RecordedRelease | None = None
    sae_id: str | None = None
    started_from: SAERef | None = None
    settings: dict[str, Any] | None = None
    trained_together: list[str] = []
    processes_per_batch: int = 1
    steps: int | None = None
    samples: int | None = None
    seconds: float | None = None
    samples_per_second: float | None = None
    evaluation: dict[str, Any] | None = None
    held_out: RecordedMeasures | None = None
    finished: str | None = None
    matmul_precision: str | None = None
    device: str | None = None
    python: str | None = None
    versions: dict[str, str] = {}
    git_revision: str | None = None

    @property
    def model(self) -> RecordedModel:
        """The language model; an empty one if none was recorded."""
        return (self.release and self.release.language_model) or RecordedModel()

    @property
    def features(self) -> RecordedFeatures | None:
        """The known features; `None` if it was not trained on such."""
        return self.release.synthetic_model if self.release else None


def read_record(folder: Path) -> TrainingRecord | None:
    """The record in an SAE's folder; `None` if it has none, a UserError if it is not ours."""
    path = folder / RECORD
    if not path.is_file():
        return None
    return read_model(path, TrainingRecord, written_by="a training")


def record_of(
    plan: Plan,
    sae_id: str,
    *,
    together: list[str],
    processes_per_batch: int,
    seconds: float,
    evaluation: dict[str, Any] | None,
) -> TrainingRecord:
    """The record of one SAE of a plan, trained together with others in so many seconds."""
    return TrainingRecord(
        release=RecordedRelease.model_validate(plan.release.model_dump(mode="json")),
        sae_id=sae_id,
        started_from=plan.starts.get(sae_id),
        settings=plan.fingerprint([sae_id]),
        trained_together=together,
        processes_per_batch=processes_per_batch,
        steps=plan.steps,
        samples=plan.samples,
        seconds=seconds,
        samples_per_second=plan.samples / seconds,
        evaluation=evaluation,
        matmul_precision=torch.get_float32_matmul_precision(),
        finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **circumstances(plan.device),
    )


def circumstances(device: str) -> dict[str, Any]:
    """Versions and the machine, by which the same settings may come out differently."""
    packages = ("sae-lens-c2r", "sae-lens", "torch", "transformer-lens", "transformers")
    return {
        "device": _name_of_device(device),
        "python": platform.python_version(),
        "versions": package_versions(*packages, "datasets"),
        "git_revision": _git_revision(),
    }


def _name_of_device(device: str) -> str:
    if torch.device(device).type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return device


def _git_revision() -> str | None:
    """The commit of the checkout that this code runs from, if it is one."""
    root = Path(__file__).parent.parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True)
    except OSError:  # no git here
        return None
    return found.stdout.strip() or None
