"""What was measured of an SAE while it was trained, as evaluations of it."""

import math
from collections.abc import Mapping
from typing import Any

from sae_lens_c2r.evaluation.catalog import HELD_OUT, KNOWN_FEATURES, TRAINING
from sae_lens_c2r.evaluation.report import Evaluation
from sae_lens_c2r.training.record import TrainingRecord

_OF_FEATURES = {  # SAELens's names of what `feature_recovery` measures as well
    "explained_variance": "explained_variance",
    "sae_l0": "l0",
    "true_l0": "true_l0",
    "mcc": "mcc",
    "uniqueness": "uniqueness",
}
_OF_DETECTION = {"precision": "precision", "recall": "recall", "f1_score": "f1"}


def measured_in_training(
    metadata: Mapping[str, Any], record: TrainingRecord | None, d_sae: int
) -> dict[str, Evaluation]:
    """The evaluations of an SAE that its config and its `training.json` have.

    Args:
        metadata: Of its config.
        record: What training recorded.
        d_sae: Its latents.

    Returns:
        Evaluations by their names.
    """
    found = {}
    dead = metadata.get("num_dead_features")
    by: dict[str, Any] = {}
    if record is not None:
        by = {"device": record.device, "versions": record.versions}
    if isinstance(dead, int) and not isinstance(dead, bool):
        found[TRAINING] = Evaluation(metrics={"dead_latents": dead}, **by)
    if record is not None and record.held_out is not None:
        said = record.held_out
        settings = {"n_tokens": said.n_tokens}
        found[HELD_OUT] = Evaluation(
            text=said.text, settings=settings, metrics=_finite(said.metrics), **by
        )
    if record is not None and record.evaluation is not None:
        metrics = _recovery(record.evaluation, d_sae)
        if metrics:
            found[KNOWN_FEATURES] = Evaluation(metrics=metrics, **by)
    return found


def _recovery(said: Mapping[str, Any], d_sae: int) -> dict[str, float]:
    """SAELens's evaluation against known features, by the names of `feature_recovery`."""
    detection = said.get("classification") or {}
    metrics = {ours: said[name] for name, ours in _OF_FEATURES.items() if name in said}
    metrics |= {
        ours: detection[name] for name, ours in _OF_DETECTION.items() if name in detection
    }
    if "dead_latents" in said:
        metrics["dead_latents"] = said["dead_latents"] / d_sae
    return _finite(metrics)


def _finite(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Those that are finite: of few samples SAELens may find none."""
    return {
        key: value
        for key, value in metrics.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
