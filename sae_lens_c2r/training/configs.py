"""SAELens's configs, made of what a release says: fields that they have, values that fit."""

from collections.abc import Collection
from dataclasses import fields
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from sae_lens.config import LoggingConfig
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY, get_sae_training_class
from sae_lens.saes.sae import TrainingSAEConfig
from sae_lens.synthetic import SyntheticModelConfig
from sae_lens.util import str_to_dtype

from sae_lens_c2r.releases.model import ReleaseError, SAESpec

_NOT_SAE_LENS_S = ("seed", "init")  # of an SAE's fields: they say how its weights begin


def sae_config(spec: SAESpec, device: str) -> TrainingSAEConfig:
    """SAELens's config of an SAE, or a `ReleaseError` that names what it does not take."""
    values = {key: value for key, value in spec.fields.items() if key not in _NOT_SAE_LENS_S}
    architecture = values.pop("architecture", None)
    if architecture not in SAE_TRAINING_CLASS_REGISTRY:
        known = ", ".join(sorted(SAE_TRAINING_CLASS_REGISTRY))
        raise ReleaseError(
            f"`architecture` should be one of {known}. Found {architecture!r} in {spec.sae_id}."
        )
    _, config_class = get_sae_training_class(architecture)
    values = checked_fields("sae", values, config_class, taken={"device", "metadata"})
    try:
        config = config_class(**values, device=device)
        floating = str_to_dtype(config.dtype).is_floating_point
    except (TypeError, ValueError) as error:
        raise ReleaseError(f"SAELens refuses {spec.sae_id}. {error}") from None
    if not floating:
        raise ReleaseError(f"`sae.dtype` should be a floating type. Found {config.dtype!r}.")
    _check_sizes(config)
    return config


def _check_sizes(config: TrainingSAEConfig) -> None:
    for name in ("d_in", "d_sae"):
        if getattr(config, name) < 1:
            raise ReleaseError(
                f"`sae.{name}` should be at least 1. Found {getattr(config, name)}."
            )
    k = getattr(config, "k", 1)
    if not 0 < k <= config.d_sae:
        raise ReleaseError(f"`sae.k` should be above 0 and at most `d_sae`. Found {k}.")


def synthetic_model_config(values: dict[str, Any]) -> SyntheticModelConfig:
    """SAELens's config of known features, or a `ReleaseError` as of `sae_config`."""
    key = "synthetic_model.config"
    values = checked_fields(key, values, SyntheticModelConfig, nested=False)
    # SAELens's reader asks for what its config has a default for.
    defaults = SyntheticModelConfig(num_features=1, hidden_dim=1).to_dict()
    return SyntheticModelConfig.from_dict({**defaults, **values})


def checked_fields(
    key: str,
    values: dict[str, Any],
    config: type,
    *,
    taken: Collection[str] = (),
    nested: bool = True,
) -> dict[str, Any]:
    """Values as the fields of one of SAELens's configs want them, as they are annotated."""
    known = {field.name for field in fields(config) if field.init} - set(taken)
    hints = get_type_hints(config)
    checked = {}
    for name, value in values.items():
        if name not in known:
            raise ReleaseError(
                f"`{key}.{name}` should be a field of SAELens's {config.__name__}: "
                f"{', '.join(sorted(known))}."
            )
        if not nested and isinstance(value, dict):  # of more than one kind: SAELens reads it
            checked[name] = value
            continue
        if name == "logger" and isinstance(value, dict):
            value = checked_fields(f"{key}.logger", value, LoggingConfig)
        try:
            valid = TypeAdapter(hints[name]).validate_python(value)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise ReleaseError(f"`{key}.{name}`: {reason}. Found {value!r}.") from None
        checked[name] = value if value == valid else valid  # 32 stays 32, and not 32.0
    return checked
