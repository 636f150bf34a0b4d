"""SAELens's trainer without a runner around it: it logs nothing and saves nothing."""

from typing import Any

from sae_lens import LoggingConfig
from sae_lens.config import SAETrainerConfig


def trainer_config(*, steps: int, batch_size: int, **options: Any) -> SAETrainerConfig:
    """A config of SAELens's trainer, which has hardly any defaults of its own.

    Args:
        steps: Training steps in all.
        batch_size: Tokens to a step.
        options: Any other field of SAELens's config.

    Returns:
        The config.
    """
    fields: dict[str, Any] = {
        "n_checkpoints": 0,
        "checkpoint_path": None,
        "save_final_checkpoint": False,
        "total_training_samples": steps * batch_size,
        "device": "cpu",
        "autocast": False,
        "lr": 1e-3,
        "lr_end": 1e-3,
        "lr_scheduler_name": "constant",
        "lr_warm_up_steps": 0,
        "lr_decay_steps": 0,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "n_restart_cycles": 1,
        "train_batch_size_samples": batch_size,
        "dead_feature_window": 1000,
        "feature_sampling_window": 10**9,
        "logger": LoggingConfig(log_to_wandb=False),
    }
    return SAETrainerConfig(**{**fields, **options})
