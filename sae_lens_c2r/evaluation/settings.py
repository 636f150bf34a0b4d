"""Requests of the command line: evaluations, their settings, files."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import first_problem
from sae_lens_c2r._support.yaml_text import parse_overrides
from sae_lens_c2r.evaluation.catalog import (
    API_KEY,
    EVALUATIONS,
    KNOWN_FEATURES,
    SAE_LENS,
    SAEBenchEvaluation,
    find_evaluation,
)
from sae_lens_c2r.inspection.activations import read_text
from sae_lens_c2r.offline.corpus import OFFLINE_DATASET
from sae_lens_c2r.training.stream import EVALUATION_SEED

_BATCH_SIZE, _DTYPE = 32, "float32"  # of models that SAEBench does not know
_DTYPES = ("float32", "float64", "float16", "bfloat16")
_EXAMPLE = "core.context_size=64"


@dataclass(config=ConfigDict(strict=True))
class _SAELensSettings:
    batch_size_prompts: int = 16
    n_eval_reconstruction_batches: int = 10
    n_eval_sparsity_variance_batches: int = 10


@dataclass(config=ConfigDict(strict=True))
class _KnownFeaturesSettings:
    samples: int = 65_536
    batch_size: int = 4096
    seed: int = EVALUATION_SEED


# Which of them is run depends on the SAE.
_OURS = {SAE_LENS: _SAELensSettings, KNOWN_FEATURES: _KnownFeaturesSettings}


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of `sae-lens-c2r evaluate`, whose help says what each is."""

    out: Path
    sae_bench: Sequence[str] = ()
    sae_lens: bool = True
    model: str | None = None
    text: str | None = None
    data: Path | None = None
    # Settings in place of the defaults, by evaluation.
    changes: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    device: str = "cpu"
    jobs: int = 1
    hours: float = 24


def parse_settings(changes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read what a command line sets, `core.context_size=64`, by evaluation."""
    parsed: dict[str, dict[str, Any]] = {}
    for key, value in parse_overrides(changes, example=_EXAMPLE).items():
        evaluation, _, name = key.partition(".")
        if not (evaluation and name):
            raise UserError(f"`--set` should be like {_EXAMPLE}. Found `{key}={value}`.")
        if evaluation not in (*EVALUATIONS, *_OURS):
            raise UserError(
                f"`--set {key}={value}` should name an evaluation. Found {evaluation}."
            )
        parsed.setdefault(evaluation, {})[name] = value
    return parsed


def checked_options(options: Options) -> Options:
    """The options with paths from the root, if whatever SAE can be asked for them."""
    wanted = [*(_OURS if options.sae_lens else ()), *options.sae_bench]
    for name in wanted:
        settings_of(name, options.changes.get(name, {}), model=options.model)
    for name, changes in options.changes.items():
        if name not in wanted:
            raise UserError(
                f"`--set {name}.{next(iter(changes))}` should be of an evaluation that is run. "
                f"These are: {', '.join(wanted) or 'none'}."
            )
    if options.hours <= 0:
        raise UserError(f"`hours` should be positive. Found {options.hours:g}.")
    if "autointerp" in options.sae_bench and not os.environ.get(API_KEY):
        raise UserError(f"autointerp asks a language model: it needs a key in {API_KEY}.")
    changes = {
        name: {key: _from_root(value) for key, value in each.items()}
        for name, each in options.changes.items()
    }
    model, text, data = map(_from_root, (options.model, options.text, options.data))
    _check_paths(options)
    return dataclasses.replace(options, model=model, text=text, data=data, changes=changes)


def _check_paths(options: Options) -> None:
    if options.out.exists() and not options.out.is_dir():
        raise UserError(f"`out` should be a folder. Found a file: {options.out}.")
    if options.data is not None:
        if not options.data.is_dir():
            raise UserError(f"`data` should be a folder. Found {options.data}.")
        if options.data.resolve().is_relative_to(options.out.resolve()):
            raise UserError(f"`data` should not lie in `out`. Found {options.data}.")
    if options.text is not None and options.text != OFFLINE_DATASET:
        read_text(options.text)


def _from_root(value: Any) -> Any:
    """The path of a file that exists, which a process elsewhere finds too; else the same."""
    if isinstance(value, str | Path) and value and Path(value).exists():
        return type(value)(Path(value).resolve())
    return value


def settings_of(name: str, changes: Mapping[str, Any], *, model: str | None) -> dict[str, Any]:
    """All settings of an evaluation with a model; a UserError unless its config takes them."""
    ours = _OURS.get(name)
    evaluation = SAEBenchEvaluation(name) if ours else find_evaluation(name)
    config_class: Any = ours or config_class_of(evaluation)
    fields = config_class.__dataclass_fields__
    fixed = (*evaluation.settings, "model_name")
    settable = evaluation.settable or [each for each in fields if each not in fixed]
    for key in changes:
        if key not in settable:
            raise UserError(f"`--set {name}.{key}` should be one of {', '.join(settable)}.")
    of_model = {} if ours else _of_model(model or "")
    values = {key: value for key, value in of_model.items() if key in fields}
    try:
        config = config_class(**{**values, **evaluation.settings, **changes})
        kept = {key: getattr(config, key) for key in fields if key in (*settable, *fixed)}
        settings: dict[str, Any] = json.loads(json.dumps(kept, allow_nan=False))
    except ValidationError as error:
        raise UserError(
            f"`--set` should fit {name}'s settings. `{name}.{first_problem(error)[1:]}"
        ) from None
    except ValueError as error:
        raise UserError(f"`--set` should be finite for {name}. {error}.") from None
    for key in changes:
        _check_size(f"{name}.{key}", settings[key], fields[key].default)
    if settings.get("llm_dtype", _DTYPE) not in _DTYPES:
        raise UserError(
            f"`--set {name}.llm_dtype` should be one of {', '.join(_DTYPES)}. "
            f"Found {settings['llm_dtype']}."
        )
    return settings


def _check_size(name: str, value: Any, default: Any) -> None:
    """Refuse less than 1 of what is counted, which is at least 1 by default."""
    default = getattr(default, "default", default)  # of a field of pydantic's
    is_count = type(value) is type(default) is int and not name.endswith("seed")
    if is_count and value < 1 <= default:
        raise UserError(f"`--set {name}` should be positive. Found {value}.")


def config_class_of(evaluation: SAEBenchEvaluation) -> Any:
    """SAEBench's config class, a dataclass of pydantic's; a UserError without SAEBench."""
    try:
        module = import_module(f"{evaluation.package}.eval_config")
        return getattr(module, evaluation.config_class)
    except ImportError as error:
        raise UserError(
            "`--sae-bench` needs SAEBench: `pip install 'sae-lens-c2r[bench]'`, or, on a "
            f"machine without CUDA, as the README says. {error}"
        ) from error


def short_name(model: str) -> str:
    """SAEBench's name of a model: that on the Hub without its organisation."""
    return model.rpartition("/")[2].lower()


def _of_model(model: str) -> dict[str, Any]:
    """The settings that SAEBench itself has for a model."""
    from sae_bench.sae_bench_utils.activation_collection import (
        LLM_NAME_TO_BATCH_SIZE,
        LLM_NAME_TO_DTYPE,
    )

    name = short_name(model)
    return {
        "model_name": model,
        "llm_batch_size": LLM_NAME_TO_BATCH_SIZE.get(name, _BATCH_SIZE),
        "llm_dtype": LLM_NAME_TO_DTYPE.get(name, _DTYPE),
    }
