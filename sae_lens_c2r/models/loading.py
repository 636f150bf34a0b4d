"""Language models as SAELens loads them: their names, and the places of their activations.

This is the one module that imports `transformer_lens`.
"""

import math
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from sae_lens.load_model import load_model
from sae_lens.saes.sae import SAEMetadata
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformer_lens.loading_from_pretrained import (
    get_official_model_name,
    get_pretrained_model_config,
)
from transformer_lens.model_bridge import TransformerBridge
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM

from sae_lens_c2r._support.errors import UserError, needing_the_hub
from sae_lens_c2r._support.remote_code import TRUST, TRUSTED, harmless_options, remote_code
from sae_lens_c2r.models.offline import hub_id_of_folder, is_model, where_model_is
from sae_lens_c2r.models.reading import TRANSFORMER_LENS, TRANSFORMERS, Reading

MODEL_CLASSES = (TRANSFORMER_LENS, "HookedMamba", TRANSFORMERS)  # that SAELens knows
# Where a model cannot be run without weights, as with experts.
_OF_THE_MODEL_S_WIDTH = re.compile(r"\.(hook_resid_(pre|mid|post)|hook_(attn|mlp)_out)$").search
_TWO_TOKENS = torch.zeros(1, 2, dtype=torch.long, device="meta")
_ANY_DEVICES = {"None", "auto", "balanced", "balanced_low_0", "sequential"}
_ID = re.compile(r"\w[\w.-]*/[\w.-]+")
# As TransformerLens has them, without the owner that they have on the Hub by now.
_OWNERS = {"gpt2": "openai-community", "distilgpt2": "distilbert"}


class HookSite(NamedTuple):
    """A place in a model; `None` is what its config alone does not tell."""

    width: int | None
    n_tokens: int | None  # in a row, at most
    n_vocabulary: int | None


def official_name(model: str) -> str | None:
    """TransformerLens's first name of a model; `None` if it has no such model."""
    with suppress(ValueError):
        return get_official_model_name(model)
    return None


def hub_id(model: str) -> str | None:
    """A model's id on the Hub, which TransformerLens knows of most of its own names."""
    if "/" in model:  # an id, or a folder, which may be of a model that we know
        is_id = _ID.fullmatch(model) and not is_model(model)
        return model if is_id else hub_id_of_folder(model)
    official = official_name(model) or ""
    owner = _OWNERS.get(official.partition("-")[0])
    return f"{owner}/{official}" if owner else official if "/" in official else None


def check_model_name(model: str, field: str) -> None:
    """Raise for the path of a folder that is not here, or that holds no model."""
    is_path = re.search(r"[/\\]|^[.~]", model) and not hub_id(model)
    if is_path and not is_model(model):
        should = "be a folder with a config.json, or a model on the Hub, like gpt2"
        raise UserError(field, should, model)


def names_of(model: str) -> set[str]:
    """All names of a model, on the Hub and in TransformerLens."""
    return {each.lower() for each in (model, official_name(model), hub_id(model)) if each}


def options_for(model: str, options: Mapping[str, Any], *, of: str | None) -> dict[str, Any]:
    """An SAE's options of loading a model `of` its own, less the revision for another one."""
    kept = dict(options)
    if of and names_of(model).isdisjoint(names_of(of)):
        kept.pop("revision", None)
    return kept


def name_as_transformers_does(metadata: SAEMetadata) -> None:
    """Have an SAE's model loaded by `transformers` where TransformerLens has no such model."""
    place, model = str(metadata.hf_hook_name or ""), metadata.model_name
    if not place or place.endswith(".input") or metadata.model_class_name:
        return
    if isinstance(model, str) and official_name(model) is None:
        metadata.model_class_name = TRANSFORMERS
        metadata.hook_name = place.removesuffix(".output")


@contextmanager
def beside_no_folder_of(model: str) -> Iterator[None]:
    """Work elsewhere if a folder that is no model has the name of one: it would be read."""
    names = filter(None, (model, official_name(model)))
    if not any(Path(name).is_dir() and not is_model(name) for name in names):
        yield
        return
    here = Path.cwd()
    with TemporaryDirectory() as empty:
        os.chdir(empty)
        try:
            yield
        finally:
            os.chdir(here)


def on_this_machine(options: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Options of loading a model, without those that place it on devices of another machine."""
    kept = dict(options)
    if str(kept.get("device_map")) not in _ANY_DEVICES:
        del kept["device_map"]
    on_gpus = torch.device(device).type == "cuda"
    if (kept.get("n_devices") or 1) > (torch.cuda.device_count() if on_gpus else 1):
        del kept["n_devices"]  # SAELens would take CUDA, whatever is asked
    return kept


@remote_code()
def load(reading: Reading, device: str, *, hook_names: list[str] | None = None) -> Any:
    """Load the model of a reading in SAELens's wrapper, without code of its authors'."""
    name = str(reading.model_name)
    options = harmless_options(reading.model_from_pretrained_kwargs, name)
    place = where_model_is(name, options.get("revision"))
    if TRUSTED.get():
        options[TRUST] = True
    # TransformerLens prints, where `--json` does, too.
    with redirect_stdout(sys.stderr), needing_the_hub(f"The model {name}"):
        return load_model(
            reading.model_class_name,
            place,
            device=device,
            model_from_pretrained_kwargs=options,
            hook_names=hook_names,
        )


@remote_code()
def pretrained_config(model: str, *, n_ctx: int | None = None) -> HookedTransformerConfig:
    """TransformerLens's config of a model, which it may have to download."""
    return get_pretrained_model_config(model, n_ctx=n_ctx)


def output_of_block(module: str) -> tuple[str, int]:
    """TransformerLens's name for the output of a block of `transformers`, and its number."""
    block = re.fullmatch(r"\D*\.(\d+)", module)
    if block is None:
        raise UserError(
            "metadata.hook_name",
            "be a block, like model.layers.9: elsewhere SAEBench cannot read a model of "
            "transformers",
            module,
        )
    return f"blocks.{block[1]}.hook_resid_post", int(block[1])


def load_by_bridge(model: str, *, module: str, revision: str | None) -> None:
    """Let TransformerLens load a model of `transformers`, of which it may know no name.

    All of SAEBench's evaluations load theirs by this method, in a process of their own. What
    they keep of a model's activations ends with a block, so that the others need not be run.
    """
    place = where_model_is(model, revision)
    _, block = output_of_block(module)

    def load(_name: str, **options: Any) -> TransformerBridge:
        options |= {"revision": revision, TRUST: TRUSTED.get()}
        bridge = TransformerBridge.boot_transformers(place, **options)
        blocks = (bridge.adapter.component_mapping or {})["blocks"].name
        if module != f"{blocks}.{block}":
            should = f"be a block of {model}, like {blocks}.{block}"
            raise UserError("metadata.hook_name", should, module)
        bridge.cfg.model_name = Path(model).name  # SAEBench joins it to paths of its own
        cached = partial(bridge.run_with_cache, stop_at_layer=block + 1)
        bridge.run_with_cache = cached  # type: ignore[method-assign, assignment]
        return bridge

    HookedTransformer.from_pretrained_no_processing = load  # type: ignore


def load_with(options: Mapping[str, Any]) -> None:
    """Let TransformerLens load models with options, which of SAEBench only core gives."""
    load = partial(HookedTransformer.from_pretrained_no_processing, **options)
    HookedTransformer.from_pretrained_no_processing = load  # type: ignore


def hook_site(
    model: str,
    hook_name: str,
    *,
    loader: str = TRANSFORMER_LENS,
    revision: str | None = None,
    n_ctx: int | None = None,
    of_a_head: bool = False,
) -> HookSite:
    """Find a place in a model, or a head's part of it, by the model's config alone."""
    if loader not in (TRANSFORMERS, TRANSFORMER_LENS):
        return HookSite(None, None, None)
    without_heads = UserError("hook_head_indices", f"be left out: {hook_name} has no heads")
    with beside_no_folder_of(model):
        if loader == TRANSFORMERS:
            if of_a_head:
                raise without_heads
            return _site_of_transformers(model, hook_name, revision)
        config = pretrained_config(model, n_ctx=n_ctx)
    if config.attention_dir == "bidirectional":  # it would be loaded without some weights
        raise UserError("model", "be a decoder if TransformerLens is to load it", model)
    config.tokenizer_name = None  # it would be loaded
    config.device = "meta"
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        empty = HookedTransformer(config, move_to_device=False)
    hooks = list(empty.hook_dict)
    if hook_name not in hooks:
        close = get_close_matches(hook_name, hooks, n=1) or hooks[-1:]
        should = (
            f"be one that TransformerLens has in {model}, whose blocks are 0 to "
            f"{config.n_layers - 1}, like {close[0]}"
        )
        raise UserError("hook_name", should, hook_name)
    try:
        empty.check_hooks_to_add(empty.hook_dict[hook_name], hook_name, lambda *_: None)
    except AssertionError as error:
        raise UserError("hook_name", "be one that runs", hook_name, f"{error}.") from None
    shapes = [torch.Size([1, 2, config.d_model])] if _OF_THE_MODEL_S_WIDTH(hook_name) else []

    def keep(found: torch.Tensor, **_: Any) -> None:
        shapes.append(found.shape)

    with suppress(Exception), torch.no_grad():  # each model has its own reasons
        empty.run_with_hooks(_TWO_TOKENS, fwd_hooks=[(hook_name, keep)])
    width = None
    if shapes and shapes[-1][:2] == _TWO_TOKENS.shape:  # of a token; SAELens joins its heads
        if of_a_head and len(shapes[-1]) == 3:
            raise without_heads
        width = shapes[-1][-1] if of_a_head else math.prod(shapes[-1][2:])
    return HookSite(width, config.n_ctx, config.d_vocab)


@remote_code()
def _site_of_transformers(model: str, hook_name: str, revision: str | None) -> HookSite:
    place, trust = where_model_is(model, revision), {TRUST: TRUSTED.get()}
    config = AutoConfig.from_pretrained(place, revision=revision, **trust)
    of_its_own = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not of_its_own:
        should = "be one that AutoModelForCausalLM loads"
        raise UserError("model", should, f"{model}, a {config.model_type}")
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config, **trust).eval()  # no block is dropped
    modules = dict(empty.named_modules())
    if hook_name not in modules:
        blocks = [each for each in modules if re.search(r"\.\d+$", each)]
        like = blocks[-1] if blocks else list(modules)[-1]
        raise UserError("hook_name", f"be a module of {model}, like {like}", hook_name)
    width = _width(empty, modules[hook_name], hook_name)
    found = (getattr(config, key, None) for key in ("max_position_embeddings", "vocab_size"))
    return HookSite(width, *found)


def _width(model: torch.nn.Module, module: torch.nn.Module, hook_name: str) -> int | None:
    """The size of what a module gives; `None` where the model does not run without weights."""
    outputs: list[Any] = []

    def keep(_module: Any, _inputs: Any, output: Any) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)

    module.register_forward_hook(keep)
    has_run = False
    with suppress(Exception), torch.no_grad():  # each model has its own reasons
        model(_TWO_TOKENS)
        has_run = True
    if has_run and not outputs:
        raise UserError("hook_name", "be a module that the model runs", hook_name)
    if outputs and not isinstance(outputs[0], torch.Tensor):
        should = "be a module that outputs a tensor, or a tuple that begins with a tensor"
        output = f"{hook_name} outputs {type(outputs[0]).__name__}."
        raise UserError("hook_name", should, more=output)
    return outputs[0].shape[-1] if outputs else None
