"""Whether SAEBench could evaluate an SAE with a model, as far as their configs tell."""

import re
from functools import lru_cache
from typing import Any

from sae_lens import SAE

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r.releases.language_models import hook_site

_LENGTH = 300  # TransformerLens names all models that it knows


def check_fit(sae: SAE[Any], model: str) -> None:
    """Refuse an SAE of another model.

    Raises:
        UserError: If TransformerLens does not load the model, or the model does not have the
            SAE's hook, or has another width there.
    """
    hook_name = sae.cfg.metadata.hook_name or ""
    if not re.match(r"blocks\.\d+\.", hook_name):
        raise UserError(
            "`hook_name` of the SAE should be in one of TransformerLens's blocks, such as "
            f"blocks.0.hook_resid_post. Found {hook_name}."
        )
    width = _width(model, hook_name)
    if width is not None and sae.cfg.d_in != width:
        raise UserError(
            f"the SAE should have inputs of the model's width, {width} in {model}. "
            f"Found {sae.cfg.d_in}."
        )


@lru_cache
def _width(model: str, hook_name: str) -> int | None:
    try:
        return hook_site(model, hook_name).width
    except UserError:
        raise
    except Exception as error:  # transformers, the Hub and TransformerLens raise many kinds
        reason = one_line(error)
        shown = reason if len(reason) <= _LENGTH else f"{reason[:_LENGTH]} ..."
        raise UserError(
            f"`model` should be one that TransformerLens loads. Found {model}. {shown}"
        ) from error
