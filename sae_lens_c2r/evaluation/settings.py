"""Requests of the command line: evaluations, their settings, files."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import first_problem, is_there
from sae_lens_c2r.evaluation.catalog import API_KEY, EVALUATIONS
from sae_lens_c2r.models.text import read_text
from sae_lens_c2r.models.text_source import OFFLINE_DATASET, TextSource
from sae_lens_c2r.saes.record import SAE_LENS

_BATCH_SIZE, _DTYPE = 32, "float32"  # of models that SAEBench does not know
_DTYPES = ("float32", "float64", "float16", "bfloat16")


@dataclass(config=ConfigDict(strict=True))
class _SAELensSettings:
    batch_size_prompts: int = 16
    n_eval_reconstruction_batches: int = 10
    n_eval_sparsity_variance_batches: int = 10


# A CPU has less time. Logits of few rows at once take it no fresh memory for each batch.
_SAE_LENS_ON_A_CPU = {
    "batch_size_prompts": 4,
    "n_eval_reconstruction_batches": 8,
    "n_eval_sparsity_variance_batches": 40,
}
# Which of them is run depends on the SAE.
_OURS = {SAE_LENS: _SAELensSettings}


@dataclasses.dataclass
class Options:
    """Options of `sae-lens-c2r evaluate`, whose help says what each is; paths from the root."""

    out: Path
    sae_bench: Sequence[str] = ()
    sae_lens: bool = True
    model: str | None = None
    text: str | None = None
    # Of the text: its `split`, `subset` and `column`, those that are given.
    part: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Settings in place of the defaults: `core.context_size`, with its value.
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    device: str = "cpu"
    jobs: int = 1
    hours: float = 24

    def __post_init__(self) -> None:
        """Raise unless the options are valid, whatever the SAE."""
        wanted = [*(_OURS if self.sae_lens else ()), *self.sae_bench]
        for name in wanted:
            settings_of(name, self.overrides, model=self.model, device=self.device)
        for key in self.overrides:
            name, _, field = key.partition(".")
            if name not in wanted or not field:
                run = ", ".join(wanted) or "none"
                should = f"be like core.context_size=64, of an evaluation that is run: {run}"
                raise UserError(f"--set {key}", should)
        if self.hours <= 0:
            raise UserError("hours", "be positive", f"{self.hours:g}")
        if "autointerp" in self.sae_bench and not os.environ.get(API_KEY):
            raise UserError(f"autointerp asks a language model, and needs a key in {API_KEY}.")
        given = [*["text"] * (self.text is not None), *self.part]
        if given and not self.sae_lens:
            advice = "SAEBench's core reads another by `--set core.dataset=org/name`."
            should = "be left out without SAELens's evaluation, which alone reads it"
            raise UserError(given[0], should, more=advice)
        if self.text is not None:
            read_text(TextSource(self.text, **self.part))
        self.overrides = {key: from_root(value) for key, value in self.overrides.items()}
        if self.text != OFFLINE_DATASET:  # whose name a file may have, too
            self.text = from_root(self.text)


def from_root(value: Any) -> Any:
    """The path of a file that exists, which a process elsewhere finds too; else the same."""
    if isinstance(value, str | Path) and value and is_there(value):
        return type(value)(Path(value).resolve())
    return value


def settings_of(
    name: str, overrides: Mapping[str, Any], *, model: str | None, device: str
) -> dict[str, Any]:
    """All settings of an evaluation with a model; a UserError unless its config takes them."""
    config_class: Any = _OURS.get(name) or config_class_of(name)
    fields = config_class.__dataclass_fields__
    on_a_cpu = name == SAE_LENS and torch.device(device).type == "cpu"
    values: dict[str, Any] = dict(_SAE_LENS_ON_A_CPU if on_a_cpu else {})
    settable = list(fields)
    if name in EVALUATIONS:
        theirs = EVALUATIONS[name]
        values = {**_of_model(model or ""), **theirs.settings}
        fixed = ("model_name", *theirs.settings)
        settable = list(theirs.settable or (key for key in fields if key not in fixed))
        fields = {key: fields[key] for key in fields if key in (*settable, *fixed)}
    dotted = {key.partition(".")[::2]: value for key, value in overrides.items()}
    changes = {key: value for (of, key), value in dotted.items() if of == name}
    for key in changes:
        if key not in settable:
            raise UserError(f"--set {name}.{key}", f"be one of {', '.join(settable)}")
    values = {key: value for key, value in {**values, **changes}.items() if key in fields}
    try:
        config = config_class(**values)
        kept = {key: getattr(config, key) for key in fields}
        settings: dict[str, Any] = json.loads(json.dumps(kept, allow_nan=False))
    except ValidationError as error:
        problem = f"`{name}.{first_problem(error)[1:]}"
        raise UserError("--set", f"fit {name}'s settings", more=problem) from None
    except ValueError as error:
        raise UserError("--set", f"be finite for {name}", more=f"{error}.") from None
    for key in changes:
        value, default = settings[key], fields[key].default
        default = getattr(default, "default", default)  # of a field of pydantic's
        is_count = type(value) is type(default) is int and not key.endswith("seed")
        if is_count and value < 1 <= default:
            raise UserError(f"--set {name}.{key}", "be positive", value)
    if (dtype := settings.get("llm_dtype", _DTYPE)) not in _DTYPES:
        raise UserError(f"--set {name}.llm_dtype", f"be one of {', '.join(_DTYPES)}", dtype)
    return settings


def config_class_of(name: str) -> Any:
    """SAEBench's config class of an evaluation; a UserError if there is none here."""
    if name not in EVALUATIONS:
        raise UserError("sae_bench", f"be some of {', '.join(EVALUATIONS)}", name)
    evaluation = EVALUATIONS[name]
    try:
        module = import_module(f"{evaluation.package}.eval_config")
        return getattr(module, evaluation.config_class)
    except ImportError as error:
        raise UserError(
            "`--sae-bench` needs SAEBench: `pip install 'sae-lens-c2r[bench]'`. On a machine "
            f"without CUDA, `make sae-bench` in a checkout. {error}"
        ) from error


def short_name(model: str) -> str:
    """SAEBench's name of a model: that on the Hub without its organisation."""
    return model.rpartition("/")[2].lower()


def _of_model(model: str) -> dict[str, Any]:
    """The settings that SAEBench itself has for a model."""
    from sae_bench.sae_bench_utils import activation_collection as known

    name = short_name(model)
    return {
        "model_name": model,
        "llm_batch_size": known.LLM_NAME_TO_BATCH_SIZE.get(name, _BATCH_SIZE),
        "llm_dtype": known.LLM_NAME_TO_DTYPE.get(name, _DTYPE),
    }
