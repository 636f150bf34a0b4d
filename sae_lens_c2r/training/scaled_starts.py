"""SAEs that start from others, on inputs that SAELens scales by a factor that it estimates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sae_lens.training.sae_trainer import SAETrainer

from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.saes.start_from import scale_inputs


@dataclass(frozen=True)
class ScaledStarts:
    """Has SAEs do on scaled inputs what those did on the inputs that they start from.

    Args:
        starts: What SAEs start from, by their ids.
    """

    starts: Mapping[str, SAERef] = field(default_factory=dict)

    def factor_is_estimated(self, sae_id: str, trainer: SAETrainer[Any, Any]) -> None:
        """Scale an SAE whose factor has just been estimated.

        Args:
            sae_id: Its id.
            trainer: Its trainer.
        """
        factor = trainer.activation_scaler.scaling_factor
        if sae_id in self.starts and factor is not None:
            scale_inputs(trainer.sae, factor)
            _scale_config(trainer, factor)

    def factor_is_loaded(self, sae_id: str, trainer: SAETrainer[Any, Any]) -> None:
        """Scale what a checkpoint does not have of an SAE: it has the weights, scaled.

        Args:
            sae_id: Its id.
            trainer: Its trainer.
        """
        factor = trainer.activation_scaler.scaling_factor
        if sae_id in self.starts and factor is not None:
            _scale_config(trainer, factor)


def _scale_config(trainer: SAETrainer[Any, Any], factor: float) -> None:
    """Scale what Matching Pursuit compares residuals with, which is no weight."""
    if hasattr(trainer.sae.cfg, "residual_threshold"):
        trainer.sae.cfg.residual_threshold *= factor
