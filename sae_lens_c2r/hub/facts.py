"""The facts on a card: what the files, training and evaluations of SAEs have recorded.

A repository keeps it as `sae-lens-c2r.json`, so that later uploads can write a card of all its
SAEs. Nothing here is typed by hand, and nothing names a place on this machine.
"""

import json
import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, ValidationError

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import first_problem
from sae_lens_c2r.evaluation.catalog import HELD_OUT, KNOWN_FEATURES, TRAINING
from sae_lens_c2r.evaluation.report import Evaluation
from sae_lens_c2r.hub.rules import is_plain, keep_plain
from sae_lens_c2r.releases.model import FACTS, check_ids
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.record import RecordedMeasures, TrainingRecord

Count = Annotated[int, Field(ge=0, lt=2**63)]
# What `feature_recovery` measures as well, by SAELens's names: most of them are the same.
_SAME = ("explained_variance", "true_l0", "mcc", "uniqueness", "precision", "recall")
_OF_FEATURES = {**dict(zip(_SAME, _SAME, strict=True)), "sae_l0": "l0", "f1_score": "f1"}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Training(_Strict):
    """The record of a training."""

    model: str | None = None  # the language model's name on the Hub, or TransformerLens's
    model_name: str | None = None  # what SAELens loads it by, where that is another one
    model_class: str | None = None
    hook_name: str | None = None
    dataset: str | None = None
    context_size: Count | None = None
    samples: Count | None = None  # tokens in all, or samples of known features
    steps: Count | None = None
    seconds: StrictFloat | None = None  # for all SAEs that were trained together
    together: Count | None = None  # how many these were
    device: str | None = None
    versions: dict[str, str] = {}
    effective_coefficients: dict[str, StrictFloat] = {}  # of the last step, by penalty
    started_from: SAERef | None = None


class SAEFacts(_Strict):
    """The facts about one SAE."""

    weights_sha256: str
    architecture: str  # SAELens's name of its form, and of what it was trained as
    trained_as: str | None = None
    d_in: Count
    d_sae: Count
    dtype: str | None = None
    options: dict[str, Any] = {}  # that it was trained with
    training: Training = Training()
    evaluations: dict[str, Evaluation] = {}
    outdated: list[str] = []  # evaluations that are of other weights or another config

    @property
    def kind(self) -> str:
        """The architecture that it was trained as, as far as that is known."""
        return self.trained_as or self.architecture

    def metrics_of(self, evaluation: str) -> dict[str, float]:
        """Return the numbers of an evaluation; none if there was none."""
        return self.evaluations[evaluation].metrics if evaluation in self.evaluations else {}


class RepoFacts(_Strict):
    """The facts about the SAEs of a repository."""

    format: Literal[1] = 1
    repo_id: str
    description: str | None = None
    license: str | None = None
    base_models: list[str] = []  # that they encode, as the Hub calls them
    datasets: list[str] = []
    saes: Annotated[dict[str, SAEFacts], Field(min_length=1)]

    @classmethod
    def read(cls, content: str | bytes) -> "RepoFacts":
        """Read what an earlier upload has left, unless it is of a later format."""
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            raise UserError(
                f"{FACTS} should be written by `sae-lens-c2r upload`. {first_problem(error)}"
            ) from None

    def joined(self, later: "RepoFacts") -> "RepoFacts":
        """Join what is known of all SAEs; a later upload counts where both have one."""
        saes = {**self.saes, **later.saes}
        for sae_id, before in self.saes.items():
            now = saes[sae_id]
            of = ("weights_sha256", "architecture")
            same = all(getattr(now, name) == getattr(before, name) for name in of)
            # Options that only one has are the defaults of a later version.
            alike = {**before.options, **now.options} == {**now.options, **before.options}
            if same and alike:  # what was measured still holds
                held = before.evaluations.keys() - set(now.outdated)
                evaluations = {key: before.evaluations[key] for key in held} | now.evaluations
                saes[sae_id] = now.model_copy(update={"evaluations": evaluations})
        return RepoFacts(
            repo_id=later.repo_id,
            description=later.description or self.description,
            license=later.license or self.license,
            base_models=sorted({*self.base_models, *later.base_models}),
            datasets=sorted({*self.datasets, *later.datasets}),
            saes=dict(sorted(saes.items())),  # as the file has them, and so every card
        )

    def to_json(self) -> str:
        """Return the file's content."""
        content = self.model_dump(mode="json", exclude_defaults=True)
        return json.dumps({"format": self.format, **content}, indent=1, sort_keys=True) + "\n"


def sae_facts(
    config: Mapping[str, Any],
    *,
    record: TrainingRecord,
    evaluations: Mapping[str, Evaluation],
    base_model: str | None = None,
    of_disk: Collection[str] = (),
) -> SAEFacts:
    """Gather what is known of an SAE by its redacted config and its records."""
    metadata = config.get("metadata") or {}
    known = keep_plain(
        {
            "weights_sha256": "",  # known when SAELens alone has loaded the file
            "architecture": config["architecture"],
            "trained_as": metadata.get("training_architecture"),
            "d_in": config["d_in"],
            "d_sae": config["d_sae"],
            "dtype": config.get("dtype"),
            # The fields that only training has, and k, which some inference forms have too.
            "options": {
                "k": config.get("k"),
                **(metadata.get("training_architecture_details") or {}),
            },
            "training": _training(metadata, record, base_model, of_disk),
        }
    )
    if record.started_from is not None:
        known["training"]["started_from"] = _started_from(record.started_from)
    measured = {**_measured_in_training(metadata, record, config["d_sae"]), **evaluations}
    known["evaluations"] = {name: _evaluation(each) for name, each in measured.items()}
    try:
        return SAEFacts.model_validate(known)
    except ValidationError as error:
        raise UserError(
            f"An SAE's record should be as this package writes it. {first_problem(error)}"
        ) from None


def _training(
    metadata: Mapping[str, Any],
    record: TrainingRecord,
    base_model: str | None,
    of_disk: Collection[str],
) -> dict[str, Any]:
    model_name = metadata.get("model_name")
    recorded = (record.model.hub_id, record.model.dataset)
    hub_id, dataset = (None if name in of_disk else name for name in recorded)
    model = base_model or hub_id or model_name
    return {
        "model": model,
        "model_name": model_name if model_name != model else None,
        "model_class": metadata.get("model_class_name"),
        "hook_name": metadata.get("hook_name"),
        "dataset": dataset or metadata.get("dataset_path"),
        "context_size": record.model.context_size or metadata.get("context_size"),
        "effective_coefficients": {
            name: metadata.get(f"{name}_effective_coefficient") for name in ("c2r", "ort")
        },
        **record.model_dump(include={"samples", "steps", "seconds", "device", "versions"}),
        "together": len(record.trained_together) or None,
    }


def _started_from(start: SAERef) -> dict[str, Any]:
    """Keep the hashes of the SAE that training started from, and its place on the Hub."""
    kept: dict[str, Any] = keep_plain({"license": start.license, "sha256": start.sha256})
    if start.repo is not None and is_plain(start.repo):
        kept |= keep_plain({"repo": start.repo, "revision": start.revision})
        with suppress(UserError):  # it is no folder on the Hub
            check_ids([start.sae_id or ""])
            kept["sae_id"] = start.sae_id
    return kept


def _evaluation(measured: Evaluation) -> dict[str, Any]:
    """Keep an evaluation, without the names of local models and texts."""
    # The path and the seconds are left out.
    known = measured.model_dump(include={"model", "text", "settings", "device", "versions"})
    for key in ("model", "text"):
        if not is_plain(known[key]):
            known[key] = f"a {key} that is not public"
    metrics = {key: float(value) for key, value in measured.metrics.items() if is_plain(key)}
    return {**keep_plain(known), "metrics": metrics}


def _measured_in_training(
    metadata: Mapping[str, Any], record: TrainingRecord, d_sae: int
) -> dict[str, Evaluation]:
    """Return the evaluations, by name, that an SAE's config and its `training.json` have."""
    recovery = record.evaluation or {}
    recovery = {**recovery, **(recovery.get("classification") or {})}
    of_features = {ours: recovery.get(name) for name, ours in _OF_FEATURES.items()}
    of_features["dead_latents"] = recovery.get("dead_latents", math.nan) / d_sae
    held_out = record.held_out or RecordedMeasures()
    text: dict[str, Any] = {"text": held_out.text, "settings": {"n_tokens": held_out.n_tokens}}
    by: dict[str, Any] = {"device": record.device, "versions": record.versions}
    dead = {"dead_latents": metadata.get("num_dead_features")}
    measured = {
        TRAINING: Evaluation(metrics=_finite(dead), **by),
        HELD_OUT: Evaluation(metrics=_finite(held_out.metrics), **text, **by),
        KNOWN_FEATURES: Evaluation(metrics=_finite(of_features), **by),
    }
    return {name: each for name, each in measured.items() if each.metrics}


def _finite(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Keep the numbers that are finite: of few samples SAELens may find none."""
    return {
        key: value
        for key, value in metrics.items()
        if type(value) in (int, float) and math.isfinite(value)
    }
