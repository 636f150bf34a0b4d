"""Whether SAEBench could evaluate an SAE with a model, as far as their configs tell."""

from functools import lru_cache
from typing import Any

from sae_lens import SAE

from sae_lens_c2r._support.errors import UserError, one_line

_LENGTH = 300  # TransformerLens names all models that it knows


def check_fit(sae: SAE[Any], model: str) -> None:
    """Refuse an SAE of another model.

    Raises:
        UserError: If TransformerLens does not load the model, or the model does not have the
            SAE's hook, or has another width there.
    """
    n_layers, d_model = _size_of(model)
    hook_name = sae.cfg.metadata.hook_name or ""
    parts = hook_name.split(".")
    if len(parts) < 3 or parts[0] != "blocks" or not parts[1].isdecimal():
        raise UserError(
            "the SAE's hook should be one of TransformerLens's blocks, such as "
            f"blocks.0.hook_resid_post. Found {hook_name}."
        )
    if int(parts[1]) >= n_layers:
        raise UserError(
            f"`model` should have the hook {hook_name}. {model} has {n_layers} layers."
        )
    if "resid" in hook_name and sae.cfg.d_in != d_model:
        raise UserError(
            f"the SAE should have inputs of the model's width, {d_model} in {model}. "
            f"Found {sae.cfg.d_in}."
        )


@lru_cache
def _size_of(model: str) -> tuple[int, int]:
    from transformer_lens.loading_from_pretrained import get_pretrained_model_config

    try:
        config = get_pretrained_model_config(model)
    except Exception as error:  # transformers, the Hub and TransformerLens raise many kinds
        reason = one_line(error)
        shown = reason if len(reason) <= _LENGTH else f"{reason[:_LENGTH]} ..."
        raise UserError(
            f"`model` should be one that TransformerLens loads. Found {model}. {shown}"
        ) from error
    return config.n_layers, config.d_model
