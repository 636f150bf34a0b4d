"""SAELens's configs, made of what a release says: fields that they have, values that fit."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from sae_lens.config import LoggingConfig
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY, get_sae_training_class
from sae_lens.saes.sae import TrainingSAEConfig
from sae_lens.synthetic import SyntheticModelConfig
from sae_lens.util import str_to_dtype

from sae_lens_c2r._support.yaml_text import as_yaml_number
from sae_lens_c2r.releases.model import Release, ReleaseError, SAESpec

K_ANNEAL_STEPS = "k_anneal_steps"
# Of an SAE's fields: they say how its weights begin, and how its k does.
_NOT_SAE_LENS_S = {"seed", "init", K_ANNEAL_STEPS}
_NOT_A_RELEASE_S = {"device", "metadata"}  # of SAELens's fields
_MAY_BE_INFINITE = {"lp_norm"}  # where it is the maximum


def sae_config(spec: SAESpec, device: str) -> TrainingSAEConfig:
    """SAELens's config of an SAE, or a `ReleaseError` that names what it does not take."""
    config_class = config_class_of(spec)
    not_its_own = spec.shared - _names(config_class)
    left_out = {"architecture", *_NOT_SAE_LENS_S, *not_its_own}
    values = {key: value for key, value in spec.fields.items() if key not in left_out}
    values = checked_fields("sae", values, config_class, taken=_NOT_A_RELEASE_S)
    try:
        config = config_class(**values, device=device)
        floating = str_to_dtype(config.dtype).is_floating_point
    except (TypeError, ValueError) as error:
        raise ReleaseError(f"SAELens refuses {spec.sae_id}. {error}") from None
    if not floating:
        raise ReleaseError(f"`sae.dtype` should be a floating type. Found {config.dtype!r}.")
    _check_sizes(config)
    return config


def config_class_of(spec: SAESpec) -> type[TrainingSAEConfig]:
    """SAELens's config of an SAE's architecture; a `ReleaseError` if it has none."""
    architecture = spec.fields.get("architecture")
    if not isinstance(architecture, str) or architecture not in SAE_TRAINING_CLASS_REGISTRY:
        known = ", ".join(sorted(SAE_TRAINING_CLASS_REGISTRY))
        raise ReleaseError(
            f"`architecture` should be one of {known}. Found {architecture!r} in {spec.sae_id}."
        )
    return get_sae_training_class(architecture)[1]


def check_shared(release: Release) -> None:
    """Raise a `ReleaseError` for a field that SAEs share, and that none of them has."""
    _check_shared(release.sae, release.saes())
    for grid in release.grids:
        _check_shared(grid.sae, release.saes_of(grid))


def _check_shared(shared: Mapping[str, Any], specs: Iterable[SAESpec]) -> None:
    classes = {config_class_of(spec) for spec in specs}
    names = set().union(*map(_names, classes), {"architecture", "seed", "init"})
    if "k" in names:
        names.add(K_ANNEAL_STEPS)
    for name in sorted(shared.keys() - names):
        whose = " or ".join(sorted(each.__name__ for each in classes))
        raise ReleaseError(
            f"`sae.{name}` should be a field of SAELens's {whose}: {', '.join(sorted(names))}."
        )


def _names(config: type) -> set[str]:
    """Fields of one of SAELens's configs, without those that it keeps for itself."""
    names = {field.name for field in fields(config) if field.init}
    return {name for name in names - _NOT_A_RELEASE_S if not name.startswith("_")}


def _check_sizes(config: TrainingSAEConfig) -> None:
    for name in ("d_in", "d_sae"):
        if getattr(config, name) < 1:
            raise ReleaseError(
                f"`sae.{name}` should be at least 1. Found {getattr(config, name)}."
            )
    k = getattr(config, "k", 1)
    if not 1 <= k <= config.d_sae:
        raise ReleaseError(f"`sae.k` should be at least 1 and at most `d_sae`. Found {k}.")
    rate = getattr(config, "topk_threshold_lr", 0)
    if rate < 0:
        raise ReleaseError(f"`sae.topk_threshold_lr` should be at least 0. Found {rate}.")


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
    ours: Collection[str] = (),
    nested: bool = True,
    strict: bool = True,
) -> dict[str, Any]:
    """Values as the fields of one of SAELens's configs want them, as they are annotated.

    Args:
        key: Where they stand in the release.
        values: The values, by the names of the fields.
        config: SAELens's config.
        taken: Fields that are not the release's to say.
        ours: Fields that a release may say there, and SAELens's config does not have.
        nested: Whether a mapping among the values is one as it is annotated.
        strict: Whether a number has to be one: `"256"`, `true` and 0.5 latents are none.

    Returns:
        The values.

    Raises:
        ReleaseError: If there is no such field, or a value is not of its kind.
    """
    known = _names(config) - set(taken)
    hints = get_type_hints(config)
    checked = {}
    for name, value in values.items():
        if name not in known:
            raise ReleaseError(
                f"`{key}.{name}` should be a field of SAELens's {config.__name__}: "
                f"{', '.join(sorted({*known, *ours}))}."
            )
        if name not in _MAY_BE_INFINITE or value != value:
            _check_finite(f"{key}.{name}", value)
        if not nested and isinstance(value, dict):  # of more than one kind: SAELens reads it
            checked[name] = value
            continue
        if name == "logger" and isinstance(value, dict):
            value = checked_fields(f"{key}.logger", value, LoggingConfig)
        try:
            # As JSON, in which a list may be a tuple, and a mapping may be a config.
            valid = TypeAdapter(hints[name]).validate_json(json.dumps(value), strict=strict)
        except ValidationError as error:
            problem = error.errors()[0]
            raise ReleaseError(
                f"`{key}.{name}`: {problem['msg']}. Found {value!r}."
                f"{as_yaml_number(value, problem['type'])}"
            ) from None
        checked[name] = value if value == valid else valid  # 32 stays 32, and not 32.0
    return checked


def _check_finite(key: str, value: Any) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise ReleaseError(f"`{key}` should be finite. Found {value!r}.") from None
