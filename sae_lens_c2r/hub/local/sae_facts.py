"""What is known of an SAE here that its card may say."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.reading import first_problem
from sae_lens_c2r.evaluation.report import Evaluation as Measured
from sae_lens_c2r.hub.card.facts import Evaluation, SAEFacts
from sae_lens_c2r.hub.leaks import is_plain, keep_plain, refuse_secrets
from sae_lens_c2r.hub.local.measured_in_training import measured_in_training
from sae_lens_c2r.hub.names import check_id
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.record import TrainingRecord

_COEFFICIENTS = ("c2r", "ort")


def facts_of(
    config: Mapping[str, Any],
    *,
    weights_sha256: str,
    record: TrainingRecord | None,
    evaluations: Mapping[str, Measured],
    base_model: str | None = None,
) -> SAEFacts:
    """What is known of an SAE by its redacted config and its records: no places of here."""
    metadata = config.get("metadata") or {}
    told = {
        "weights_sha256": weights_sha256,
        "architecture": config["architecture"],
        "trained_as": metadata.get("training_architecture"),
        "d_in": config["d_in"],
        "d_sae": config["d_sae"],
        "dtype": config.get("dtype"),
        "options": metadata.get("training_architecture_details") or {},
        "training": _training(metadata, record or TrainingRecord(), base_model),
    }
    kept = keep_plain(told)
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
    """What is said of an SAE that another one started from: on the Hub, or only its content."""
    kept: dict[str, Any] = keep_plain({"license": said.license, "sha256": said.sha256})
    if said.repo is not None and is_plain(said.repo):
        kept |= keep_plain({"repo": said.repo, "revision": said.revision})
        with suppress(UserError):  # it is no folder on the Hub
            kept["sae_id"] = check_id(said.sae_id or "")
    return kept


def _evaluation(said: Measured) -> dict[str, Any]:
    """What is said of an evaluation; what it read here is told from what it read elsewhere."""
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
    coefficients = {
        name: metadata.get(f"{name}_effective_coefficient") for name in _COEFFICIENTS
    }
    model_name = metadata.get("model_name")
    model = base_model or record.model.hub_id or model_name
    return {
        "model": model,
        "model_name": model_name if model_name != model else None,
        "model_class": metadata.get("model_class_name"),
        "hook_name": metadata.get("hook_name"),
        "dataset": record.model.dataset or metadata.get("dataset_path"),
        "context_size": record.model.context_size or metadata.get("context_size"),
        "effective_coefficients": coefficients,
        **record.model_dump(include={"samples", "steps", "seconds", "device", "versions"}),
        "together": len(record.trained_together) or None,
    }
