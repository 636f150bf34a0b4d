"""Language models as SAELens, TransformerLens and transformers load them."""

import re
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sae_lens.load_model import load_model
from sae_lens.saes.sae import SAEMetadata
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformer_lens.loading_from_pretrained import get_pretrained_model_config
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoConfig

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.remote_code import TRUST, TRUSTED, harmless_options, remote_code
from sae_lens_c2r.models.names import ModelName
from sae_lens_c2r.models.reading import TRANSFORMER_LENS, TRANSFORMERS, Reading

MODEL_CLASSES = (TRANSFORMER_LENS, "HookedMamba", TRANSFORMERS)  # that SAELens knows
_RESIDUAL_STREAM = re.compile(r"blocks\.\d+\.hook_resid_(pre|mid|post)")  # TransformerLens's
_BLOCK = re.compile(r"\.(layers?|h|blocks?)\.\d+$")  # a block's output, in `transformers`
_ANY_DEVICES = {"None", "auto", "balanced", "balanced_low_0", "sequential"}


def options_for(model: str, options: Mapping[str, Any], *, of: str | None) -> dict[str, Any]:
    """An SAE's options of loading a model `of` its own, less the revision for another one."""
    kept = dict(options)
    if of and not ModelName(model).is_of(of):
        kept.pop("revision", None)
    return kept


def name_as_transformers_does(metadata: SAEMetadata) -> None:
    """Have an SAE's model loaded by `transformers` where TransformerLens has no such model."""
    place, model = str(metadata.hf_hook_name or ""), metadata.model_name
    if not place or place.endswith(".input") or metadata.model_class_name:
        return
    if isinstance(model, str) and ModelName(model).in_transformer_lens is None:
        metadata.model_class_name = TRANSFORMERS
        metadata.hook_name = place.removesuffix(".output")


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
    place = ModelName(name).place(options.get("revision"))
    if TRUSTED.get():
        options[TRUST] = True
    # TransformerLens prints, where `--json` does, too.
    with redirect_stdout(sys.stderr):
        return load_model(
            reading.model_class_name,
            place,
            device=device,
            model_from_pretrained_kwargs=options,
            hook_names=hook_names,
        )


@remote_code()
def pretrained_config(model: str) -> HookedTransformerConfig:
    """TransformerLens's config of a model, which it may have to download."""
    return get_pretrained_model_config(model)


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
    place = ModelName(model).place(revision)
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


def residual_width(
    model: str, hook_name: str, loader: str, revision: str | None = None
) -> int | None:
    """The width of a model by its config, where a hook is a residual stream; or else `None`."""
    if loader == TRANSFORMER_LENS and _RESIDUAL_STREAM.fullmatch(hook_name):
        config = pretrained_config(model)
        if config.attention_dir == "bidirectional":  # it would be loaded without some weights
            should = "be a decoder if TransformerLens is to load it"
            raise UserError("model", should, model)
        return int(config.d_model)
    if loader == TRANSFORMERS and _BLOCK.search(hook_name):
        return _width_of_transformers(model, revision)
    return None


@remote_code()
def _width_of_transformers(model: str, revision: str | None) -> int | None:
    place, trust = ModelName(model).place(revision), {TRUST: TRUSTED.get()}
    config = AutoConfig.from_pretrained(place, revision=revision, **trust)
    return getattr(config.get_text_config(), "hidden_size", None)
