"""An evaluation's settings: SAEBench's defaults, what a model needs, what its user sets."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

from pydantic import ValidationError

from sae_lens_c2r._support.changes import parse_changes
from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.evaluation.catalog import (
    EVALUATIONS,
    KNOWN_FEATURES,
    SAE_LENS,
    SAEBenchEvaluation,
)
from sae_lens_c2r.training.shared_stream import EVALUATION_SEED

_BATCH_SIZE, _DTYPE = 32, "float32"  # of models that SAEBench does not know
_EXAMPLE = "core.context_size=64"
_DTYPES = ("float32", "float64", "float16", "bfloat16")
_DEFAULTS = {  # of what SAEBench has no part in
    SAE_LENS: {
        "batch_size_prompts": 16,
        "n_eval_reconstruction_batches": 10,
        "n_eval_sparsity_variance_batches": 10,
    },
    KNOWN_FEATURES: {"samples": 65_536, "batch_size": 4096, "seed": EVALUATION_SEED},
}


def parse_settings(changes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read what a command line sets, `core.context_size=64`.

    Args:
        changes: The evaluation and its field, joined by a dot, with the value in YAML.

    Returns:
        The fields of each evaluation.

    Raises:
        UserError: If one is not of that form, or of no evaluation.
    """
    parsed: dict[str, dict[str, Any]] = {}
    for key, value in parse_changes(changes, example=_EXAMPLE).items():
        evaluation, _, name = key.partition(".")
        if not (evaluation and name):
            raise UserError(f"`--set` should be like {_EXAMPLE}. Found `{key}={value}`.")
        if evaluation not in (*EVALUATIONS, *_DEFAULTS):
            raise UserError(
                f"`--set {key}={value}` should name an evaluation. Found {evaluation}."
            )
        parsed.setdefault(evaluation, {})[name] = value
    return parsed


def sae_bench_settings(
    evaluation: SAEBenchEvaluation, model: str, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """All settings of one of SAEBench's evaluations, checked by its config class.

    Args:
        evaluation: Which.
        model: The language model, by its name on the Hub or TransformerLens's.
        changes: Fields of the config in place of their defaults.

    Returns:
        Every field that can be set, and its value.

    Raises:
        UserError: If SAEBench is not installed, or has no such field or value.
    """
    fields = config_class_of(evaluation).__dataclass_fields__
    settable = evaluation.settable or tuple(
        name for name in fields if name not in (*evaluation.settings, "model_name")
    )
    for name in changes:
        if name not in settable:
            raise UserError(
                f"`--set {evaluation.name}.{name}` should be one of "
                f"{', '.join(sorted(settable))}."
            )
    of_model = {"model_name": model, **_of_model(model)}
    values = {key: value for key, value in of_model.items() if key in fields}
    kept = (*settable, *evaluation.settings, "model_name")
    settings = _accepted(evaluation, {**values, **evaluation.settings, **changes}, kept)
    for name in changes:
        _check_size(f"{evaluation.name}.{name}", settings[name], fields[name].default)
    if settings.get("llm_dtype", _DTYPE) not in _DTYPES:
        raise UserError(
            f"`--set {evaluation.name}.llm_dtype` should be one of {', '.join(_DTYPES)}. "
            f"Found {settings['llm_dtype']}."
        )
    return settings


def _accepted(
    evaluation: SAEBenchEvaluation, values: dict[str, Any], kept: tuple[str, ...]
) -> dict[str, Any]:
    """Fields of SAEBench's config, of JSON's types, if it takes these values."""
    try:
        config = asdict(config_class_of(evaluation)(**values))
        settings = {key: value for key, value in config.items() if key in kept}
        of_json: dict[str, Any] = json.loads(json.dumps(settings, allow_nan=False))
    except ValidationError as error:
        reason = "; ".join(
            f"`{evaluation.name}.{'.'.join(map(str, each['loc']))}`: {each['msg']}. Found "
            f"{each['input']}"
            for each in error.errors()
        )
        raise UserError(f"`--set` should fit SAEBench's settings. {reason}.") from None
    except ValueError as error:
        raise UserError(f"`--set` should be finite for {evaluation.name}. {error}.") from None
    return of_json


def _check_size(name: str, value: Any, default: Any) -> None:
    """What SAEBench counts with is at least 1, as its own defaults are."""
    counts = (
        not name.endswith("seed") and isinstance(value, int) and not isinstance(value, bool)
    )
    default = getattr(default, "default", default)  # of a field of pydantic's
    if counts and value < 1 and isinstance(default, int) and default >= 1:
        raise UserError(f"`--set {name}` should be positive. Found {value}.")


def config_class_of(evaluation: SAEBenchEvaluation) -> Any:
    """SAEBench's config class.

    Returns:
        The class, a dataclass of pydantic's.

    Raises:
        UserError: If SAEBench is not installed.
    """
    try:
        module = import_module(f"{evaluation.package}.eval_config")
        return getattr(module, evaluation.config_class)
    except ImportError as error:
        raise UserError(
            "`--sae-bench` needs SAEBench: `pip install 'sae-lens-c2r[bench]'`, or, on a "
            f"machine without CUDA, as the README says. {error}"
        ) from error


def counted_settings(evaluation: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of an evaluation that is not SAEBench's.

    Args:
        evaluation: SAELens's own, or that against known features.
        changes: Its settings, positive whole numbers, in place of ours.

    Returns:
        Every setting and its value.

    Raises:
        UserError: If there is no such setting, or it is not a positive whole number.
    """
    defaults = _DEFAULTS[evaluation]
    for name, value in changes.items():
        if name not in defaults:
            raise UserError(
                f"`--set {evaluation}.{name}` should be one of {', '.join(defaults)}."
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UserError(
                f"`--set {evaluation}.{name}` should be a positive whole number. Found {value}."
            )
    return {**defaults, **changes}


def short_name(model: str) -> str:
    """What SAEBench calls a model: its name on the Hub without its organisation."""
    return model.rpartition("/")[2].lower()


def _of_model(model: str) -> dict[str, Any]:
    """SAEBench's own batch size and type for a model."""
    from sae_bench.sae_bench_utils.activation_collection import (
        LLM_NAME_TO_BATCH_SIZE,
        LLM_NAME_TO_DTYPE,
    )

    name = short_name(model)
    return {
        "llm_batch_size": LLM_NAME_TO_BATCH_SIZE.get(name, _BATCH_SIZE),
        "llm_dtype": LLM_NAME_TO_DTYPE.get(name, _DTYPE),
    }
