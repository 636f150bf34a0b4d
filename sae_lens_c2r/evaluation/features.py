"""The known features that an SAE was trained on, as its `training.json` names them."""

import torch
from sae_lens.synthetic import SyntheticModelConfig

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.configs import synthetic_model_config
from sae_lens_c2r.training.record import RECORD, TrainingRecord, read_record


def record_of_features(source: SAERef) -> TrainingRecord | None:
    """What training recorded of an SAE of known features; `None` if it is of another kind."""
    record = read_record(source.folder) if source.folder else None
    return record if record is not None and record.features is not None else None


def features_config(record: TrainingRecord, device: str) -> SyntheticModelConfig:
    """SAELens's config of the features of a training.

    Args:
        record: What training recorded.
        device: Where they are to be drawn again.

    Returns:
        The config.

    Raises:
        UserError: If other features would be drawn of it.
    """
    assert record.features is not None, "of an SAE of known features"
    config = synthetic_model_config(record.features.config)
    if config.seed is None:
        raise UserError(
            f"{RECORD} should have a seed among the features' config: without one SAELens does "
            "not draw the same features again. Found none."
        )
    trained_on = torch.device((record.device or device).partition(" ")[0]).type
    if torch.device(device).type != trained_on:
        raise UserError(
            f"`device` should be {trained_on}, where SAELens drew the features for training: "
            f"elsewhere it draws others. Found {device}."
        )
    return config
