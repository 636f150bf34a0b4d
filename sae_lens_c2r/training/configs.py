"""SAELens's configs, made of what a release says: fields that they have, values that fit."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from sae_lens import MultiSAETrainingRunnerConfig
from sae_lens.config import LoggingConfig
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY, get_sae_training_class
from sae_lens.saes.sae import TrainingSAEConfig
from sae_lens.synthetic import SyntheticModelConfig, SyntheticSAERunnerConfig
from sae_lens.util import str_to_dtype

from sae_lens_c2r._support.yaml_text import as_yaml_number
from sae_lens_c2r.releases.model import Release, ReleaseError, SAESpec

K_ANNEAL_STEPS = "k_anneal_steps"
MATMUL_PRECISION, NORM_MULTIPLE = "matmul_precision", "max_activation_norm_multiple"
NEEDS_ESTIMATE = {"expected_average_only_in", "covariance_whitening"}  # of SAELens's
_MAY_BE_INFINITE = {"lp_norm"}  # where it is the maximum


def _floating(dtype: str) -> str:
    if not str_to_dtype(dtype).is_floating_point:
        raise ValueError("should be a floating type, like bfloat16")
    return dtype


# What a field is at least, where SAELens does not check it, or only amid training.
_LEAST: dict[str, dict[str, int]] = {
    "sae": {
        "d_in": 1,
        "d_sae": 1,
        "k": 1,
        "topk_threshold_lr": 0,
        "seed": 0,
        K_ANNEAL_STEPS: 0,
    },
    "runner": {
        "batch_size": 1,
        "train_batch_size_tokens": 1,
        "store_batch_size_prompts": 1,
        "n_batches_in_buffer": 1,
        "n_batches_for_norm_estimate": 1,
        "dead_feature_window": 1,
        NORM_MULTIPLE: 1,
        "lr": 0,
        "lr_warm_up_steps": 0,
        "lr_decay_steps": 0,
    },
}
_PRECISION = {MATMUL_PRECISION: Literal["highest", "high", "medium", None]}
# What a release says beside SAELens's fields. What `init` may be is `find_start`'s to say.
_OURS: dict[type, dict[str, Any]] = {
    TrainingSAEConfig: {"seed": int, "init": Any, K_ANNEAL_STEPS: int},
    MultiSAETrainingRunnerConfig: {**_PRECISION, NORM_MULTIPLE: float | None},
    SyntheticSAERunnerConfig: _PRECISION,
}
_NOT_SET = {  # fields of SAELens's that a release cannot set, or sets elsewhere
    *("saes", "sae", "hook_names", "model_name", "dataset_path", "context_size"),
    *("training_tokens", "training_samples", "synthetic_model", "device", "evaluator"),
    *("output_path", "save_synthetic_model", "checkpoint_path", "n_checkpoints"),
    *("save_final_checkpoint", "resume_from_checkpoint", "metadata"),
}


def sae_config(spec: SAESpec, device: str) -> TrainingSAEConfig:
    """SAELens's config of an SAE, or a `ReleaseError` that names what it does not take."""
    config_class = _class_of(spec)
    left_out = {"architecture", *(spec.shared - _types(config_class).keys())}
    values = {key: value for key, value in spec.fields.items() if key not in left_out}
    values = checked_fields("sae", values, config_class)
    for name in _OURS[TrainingSAEConfig]:
        values.pop(name, None)
    try:
        config = config_class(**values, device=device)
    except (TypeError, ValueError) as error:
        raise ReleaseError(f"SAELens refuses {spec.sae_id}. {error}") from None
    if getattr(config, "k", 1) > config.d_sae:
        raise ReleaseError(
            f"`sae.k` should be at most `d_sae`, {config.d_sae}. Found {config.k}."  # type: ignore[attr-defined]
        )
    return config


def synthetic_model_config(values: dict[str, Any]) -> SyntheticModelConfig:
    """SAELens's config of known features, or a `ReleaseError` as of `sae_config`."""
    values = checked_fields("synthetic_model.config", values, SyntheticModelConfig)
    # SAELens's reader asks for what its config has a default for.
    defaults = SyntheticModelConfig(num_features=1, hidden_dim=1).to_dict()
    return SyntheticModelConfig.from_dict({**defaults, **values})


def check_shared(release: Release) -> None:
    """Raise a `ReleaseError` for a field that SAEs share, and that none of them has."""
    _check_shared(release.sae, release.saes())
    for grid in release.grids:
        _check_shared(grid.sae, release.saes_of(grid))


def _check_shared(shared: Mapping[str, Any], specs: Iterable[SAESpec]) -> None:
    classes = {_class_of(spec) for spec in specs}
    names = {"architecture"}.union(*map(_types, classes))
    for name in sorted(shared.keys() - names):
        whose = " or ".join(sorted(each.__name__ for each in classes))
        raise ReleaseError(
            f"`sae.{name}` should be a field of SAELens's {whose}: {', '.join(sorted(names))}."
        )


def _class_of(spec: SAESpec) -> type[TrainingSAEConfig]:
    """SAELens's config of an SAE's architecture; a `ReleaseError` if it has none."""
    architecture = spec.fields.get("architecture")
    if not isinstance(architecture, str) or architecture not in SAE_TRAINING_CLASS_REGISTRY:
        known = ", ".join(sorted(SAE_TRAINING_CLASS_REGISTRY))
        raise ReleaseError(
            f"`architecture` should be one of {known}. Found {architecture!r} in {spec.sae_id}."
        )
    return get_sae_training_class(architecture)[1]


def _types(config: type) -> dict[str, Any]:
    """The fields that a release can set, beside one of SAELens's configs, and their types."""
    hints = get_type_hints(config)
    names = {each.name for each in fields(config) if each.init} - _NOT_SET
    types = {name: hints[name] for name in names if not name.startswith("_")}
    ours = next((_OURS[each] for each in _OURS if issubclass(config, each)), {})
    return types | {
        name: type_ for name, type_ in ours.items() if name != K_ANNEAL_STEPS or "k" in types
    }


def checked_fields(
    key: str, values: Mapping[str, Any], config: type, *, strict: bool = True
) -> dict[str, Any]:
    """Values as the fields of one of SAELens's configs want them, as they are annotated."""
    types = _types(config)
    checked = {}
    for name, value in values.items():
        if name not in types:
            raise ReleaseError(
                f"`{key}.{name}` should be a field of SAELens's {config.__name__}: "
                f"{', '.join(sorted(types))}."
            )
        may_be_infinite = name in _MAY_BE_INFINITE and value == value
        if not (may_be_infinite or _is_finite(value)):
            raise ReleaseError(f"`{key}.{name}` should be finite. Found {value!r}.")
        if isinstance(value, dict) and config is SyntheticModelConfig:
            checked[name] = value  # of more than one kind: SAELens reads it
            continue
        if name == "logger" and isinstance(value, dict):
            value = checked_fields(f"{key}.logger", value, LoggingConfig)
        bound: Any = Field(ge=_LEAST.get(key, {}).get(name))
        if name == "dtype":
            bound = AfterValidator(_floating)
        type_: Any = Annotated[types[name], bound]
        try:
            # As JSON, in which a list may be a tuple, and a mapping may be a config.
            valid: Any = TypeAdapter(type_).validate_json(json.dumps(value), strict=strict)
        except ValidationError as error:
            problem = error.errors()[0]
            raise ReleaseError(
                f"`{key}.{name}`: {problem['msg'].removeprefix('Value error, ')}. Found "
                f"{value!r}.{as_yaml_number(value, problem['type'])}"
            ) from None
        checked[name] = value if value == valid else valid  # 32 stays 32, and not 32.0
    return checked


def _is_finite(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return not isinstance(value, int) or abs(value) <= sys.float_info.max
