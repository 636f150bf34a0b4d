"""The facts on a card: what the files, training and evaluations of SAEs have recorded.

A repository keeps it as `sae-lens-c2r.json`, so that later uploads can write a card of all its
SAEs. Nothing here is typed in by anybody, and nothing names a place on this machine.
"""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import first_problem
from sae_lens_c2r.evaluation.catalog import HELD_OUT, KNOWN_FEATURES, TRAINING
from sae_lens_c2r.evaluation.report import Evaluation as Measured
from sae_lens_c2r.hub.rules import FACTS, check_id, is_plain, keep_plain, refuse_secrets
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.record import TrainingRecord

FORMAT = 1
Count = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]
_OF_FEATURES = {  # SAELens's names of what `feature_recovery` measures as well
    "explained_variance": "explained_variance",
    "sae_l0": "l0",
    "true_l0": "true_l0",
    "mcc": "mcc",
    "uniqueness": "uniqueness",
}
_OF_DETECTION = {"precision": "precision", "recall": "recall", "f1_score": "f1"}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Evaluation(_Strict):
    """One evaluation of one SAE, as `evaluation.json` has it.

    Args:
        model: The language model; `None` for an evaluation of the weights alone.
        text: What SAELens's own evaluation read; `None` for what the SAE was trained on.
    """

    model: str | None = None
    text: str | None = None
    settings: dict[str, Any] = {}
    device: str | None = None
    versions: dict[str, str] = {}
    metrics: dict[str, Number]


class Training(_Strict):
    """The record of a training.

    Args:
        model: The language model's name on the Hub or TransformerLens's; `None` for known
            features.
        model_name: What SAELens loads it by, where that is another name.
        samples: Tokens in all, or samples of known features.
        seconds: How long it took, for all SAEs that were trained together.
        together: How many these were.
        effective_coefficients: What `c2r_coefficient` and `ort_coefficient` came to at the
            last step, by `c2r` and `ort`.
    """

    model: str | None = None
    model_name: str | None = None
    model_class: str | None = None
    hook_name: str | None = None
    dataset: str | None = None
    context_size: Count | None = None
    samples: Count | None = None
    steps: Count | None = None
    seconds: Number | None = None
    together: Count | None = None
    device: str | None = None
    versions: dict[str, str] = {}
    effective_coefficients: dict[str, Number] = {}
    started_from: SAERef | None = None


class SAEFacts(_Strict):
    """The facts about one SAE.

    Args:
        architecture: SAELens's name of its form.
        trained_as: SAELens's name of what it was trained as.
        options: Fields that it was trained with.
    """

    weights_sha256: str
    architecture: str
    trained_as: str | None = None
    d_in: Count
    d_sae: Count
    dtype: str | None = None
    options: dict[str, Any] = {}
    training: Training = Training()
    evaluations: dict[str, Evaluation] = {}

    def is_the_same_as(self, other: "SAEFacts") -> bool:
        """Whether what was measured of one SAE is true of another, used alike."""
        of = ("weights_sha256", "architecture", "options")
        return all(getattr(self, name) == getattr(other, name) for name in of)


def _in_order(saes: dict[str, SAEFacts]) -> dict[str, SAEFacts]:
    """Sort the SAEs as the file does, and so every card."""
    return dict(sorted(saes.items()))


class RepoFacts(_Strict):
    """The facts about the SAEs of a repository.

    Args:
        description: What they are for.
        license: Of their weights, as the Hub spells it.
        base_models: The models that they encode, as the Hub calls them.
        datasets: The texts that the Hub has.
        saes: The SAEs by their ids.
    """

    format: int = FORMAT
    repo_id: str
    description: str | None = None
    license: str | None = None
    base_models: list[str] = []
    datasets: list[str] = []
    saes: Annotated[dict[str, SAEFacts], Field(min_length=1), AfterValidator(_in_order)]

    @classmethod
    def read(cls, content: str | bytes) -> "RepoFacts":
        """Read what an earlier upload has left, unless it is of a later format."""
        try:
            said = from_json(content)
        except ValueError as error:
            raise UserError(f"{FACTS} should be JSON. {error}") from None
        if isinstance(said, dict) and said.get("format", FORMAT) != FORMAT:
            raise UserError(f"{FACTS} should be of format {FORMAT}. Found {said['format']}.")
        try:
            facts = cls.model_validate(said)
        except ValidationError as error:
            raise UserError(
                f"{FACTS} should be written by `sae-lens-c2r upload`. {first_problem(error)}"
            ) from None
        for sae_id in facts.saes:
            check_id(sae_id)
        return facts

    def joined(self, later: "RepoFacts") -> "RepoFacts":
        """Join what is known of all SAEs; a later upload counts where both have one."""
        saes = {**self.saes, **later.saes}
        for sae_id, before in self.saes.items():
            now = saes[sae_id]
            if now.is_the_same_as(before):  # what was measured still holds
                evaluations = {**before.evaluations, **now.evaluations}
                saes[sae_id] = now.model_copy(update={"evaluations": evaluations})
        return RepoFacts(
            repo_id=later.repo_id,
            description=later.description or self.description,
            license=later.license or self.license,
            base_models=sorted({*self.base_models, *later.base_models}),
            datasets=sorted({*self.datasets, *later.datasets}),
            saes=saes,
        )

    def to_json(self) -> str:
        """Return the file's content."""
        said = self.model_dump(mode="json", exclude_defaults=True)
        return json.dumps({"format": self.format, **said}, indent=1, sort_keys=True) + "\n"


def sae_facts(
    config: Mapping[str, Any],
    *,
    record: TrainingRecord | None,
    evaluations: Mapping[str, Measured],
    base_model: str | None = None,
) -> SAEFacts:
    """Gather what is known of an SAE by its redacted config and its records."""
    metadata = config.get("metadata") or {}
    kept = keep_plain(
        {
            "weights_sha256": "",  # told by who loads it without us
            "architecture": config["architecture"],
            "trained_as": metadata.get("training_architecture"),
            "d_in": config["d_in"],
            "d_sae": config["d_sae"],
            "dtype": config.get("dtype"),
            "options": metadata.get("training_architecture_details") or {},
            "training": _training(metadata, record or TrainingRecord(), base_model),
        }
    )
    if record is not None and record.started_from is not None:
        kept["training"]["started_from"] = _started_from(record.started_from)
    measured = {**measured_in_training(metadata, record, config["d_sae"]), **evaluations}
    kept["evaluations"] = {name: _evaluation(each) for name, each in measured.items()}
    refuse_secrets("what is known of an SAE", json.dumps(kept, ensure_ascii=False))
    try:
        return SAEFacts.model_validate(kept)
    except ValidationError as error:
        raise UserError(
            f"What is known of an SAE should be as we write it. {first_problem(error)}"
        ) from None


def _started_from(said: SAERef) -> dict[str, Any]:
    """Keep where an SAE is that another one started from, if on the Hub, and its content."""
    kept: dict[str, Any] = keep_plain({"license": said.license, "sha256": said.sha256})
    if said.repo is not None and is_plain(said.repo):
        kept |= keep_plain({"repo": said.repo, "revision": said.revision})
        with suppress(UserError):  # it is no folder on the Hub
            kept["sae_id"] = check_id(said.sae_id or "")
    return kept


def _evaluation(said: Measured) -> dict[str, Any]:
    """Keep an evaluation; what it read here is told from what it read elsewhere."""
    told = said.model_dump(include=set(Evaluation.model_fields))
    for key in ("model", "text"):
        if told.get(key) is not None and not is_plain(told[key]):
            told[key] = f"a {key} that is not public"
    # Numbers that are not finite are refused, not left out.
    metrics = {key: value for key, value in told.pop("metrics").items() if is_plain(key)}
    return {**keep_plain(told), "metrics": metrics}


def _training(
    metadata: Mapping[str, Any], record: TrainingRecord, base_model: str | None
) -> dict[str, Any]:
    model_name = metadata.get("model_name")
    model = base_model or record.model.hub_id or model_name
    return {
        "model": model,
        "model_name": model_name if model_name != model else None,
        "model_class": metadata.get("model_class_name"),
        "hook_name": metadata.get("hook_name"),
        "dataset": record.model.dataset or metadata.get("dataset_path"),
        "context_size": record.model.context_size or metadata.get("context_size"),
        "effective_coefficients": {
            name: metadata.get(f"{name}_effective_coefficient") for name in ("c2r", "ort")
        },
        **record.model_dump(include={"samples", "steps", "seconds", "device", "versions"}),
        "together": len(record.trained_together) or None,
    }


def measured_in_training(
    metadata: Mapping[str, Any], record: TrainingRecord | None, d_sae: int
) -> dict[str, Measured]:
    """Return the evaluations, by name, that an SAE's config and its `training.json` have."""
    found = {}
    dead = metadata.get("num_dead_features")
    by: dict[str, Any] = {}
    if record is not None:
        by = {"device": record.device, "versions": record.versions}
    if isinstance(dead, int) and not isinstance(dead, bool):
        found[TRAINING] = Measured(metrics={"dead_latents": dead}, **by)
    if record is not None and record.held_out is not None:
        said = record.held_out
        settings = {"n_tokens": said.n_tokens}
        found[HELD_OUT] = Measured(
            text=said.text, settings=settings, metrics=_finite(said.metrics), **by
        )
    if record is not None and record.evaluation is not None:
        metrics = _recovery(record.evaluation, d_sae)
        if metrics:
            found[KNOWN_FEATURES] = Measured(metrics=metrics, **by)
    return found


def _recovery(said: Mapping[str, Any], d_sae: int) -> dict[str, float]:
    """Name SAELens's evaluation against known features as `feature_recovery` does."""
    detection = said.get("classification") or {}
    metrics = {ours: said[name] for name, ours in _OF_FEATURES.items() if name in said}
    metrics |= {
        ours: detection[name] for name, ours in _OF_DETECTION.items() if name in detection
    }
    if "dead_latents" in said:
        metrics["dead_latents"] = said["dead_latents"] / d_sae
    return _finite(metrics)


def _finite(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Keep the numbers that are finite: of few samples SAELens may find none."""
    return {
        key: value
        for key, value in metrics.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
