"""SAEs that start from others, on inputs that SAELens scales by a factor that it estimates."""

from collections.abc import Mapping
from typing import Any

from sae_lens.training.sae_trainer import SAETrainer

from sae_lens_c2r.saes.start_from import scale_inputs
from sae_lens_c2r.training.long_run import Watch
from sae_lens_c2r.training.starts import Start


def scaled_starts(starts: Mapping[str, Start], watch: Watch | None) -> Watch | None:
    """Have SAEs do on the scaled inputs what those did on the inputs that they start from.

    Args:
        starts: What SAEs start from, by their ids.
        watch: What else is to be given each trainer before it begins.

    Returns:
        What is to be given each trainer, once its state is that from which it continues.
    """

    def both(sae_id: str, trainer: SAETrainer[Any, Any]) -> None:
        if sae_id in starts:
            _scale_after_estimate(trainer)
        if watch is not None:
            watch(sae_id, trainer)

    return both


def _scale_after_estimate(trainer: SAETrainer[Any, Any]) -> None:
    scaler = trainer.activation_scaler
    estimate = scaler.estimate_scaling_factor

    def estimate_and_scale(*arguments: Any, **options: Any) -> None:
        estimate(*arguments, **options)
        assert scaler.scaling_factor is not None
        scale_inputs(trainer.sae, scaler.scaling_factor)
        _scale_config(trainer)

    # SAELens estimates nothing where a checkpoint has the factor, and scaled weights with it.
    scaler.estimate_scaling_factor = estimate_and_scale  # type: ignore[method-assign]
    if scaler.scaling_factor is not None:
        _scale_config(trainer)


def _scale_config(trainer: SAETrainer[Any, Any]) -> None:
    """Scale what Matching Pursuit compares residuals with, which is no weight."""
    if hasattr(trainer.sae.cfg, "residual_threshold"):
        trainer.sae.cfg.residual_threshold *= trainer.activation_scaler.scaling_factor
