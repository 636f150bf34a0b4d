"""A plan beside the config of its language model: what training would find out later.

The config alone is loaded, and of `transformers` a model without weights is made of it.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
from transformer_lens.loading_from_pretrained import (
    get_official_model_name,
    get_pretrained_model_config,
)
from transformers import AutoConfig, AutoModelForCausalLM

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r.offline.minilm import model_folder
from sae_lens_c2r.offline.source import OFFLINE_MODEL
from sae_lens_c2r.releases.first import transformer_lens_release
from sae_lens_c2r.releases.model import LanguageModel, ReleaseError
from sae_lens_c2r.training.plan import Plan
from sae_lens_c2r.training.plan_checks import TRANSFORMER_LENS, TRANSFORMERS

NOT_ON_THE_HUB = (RepositoryNotFoundError, RevisionNotFoundError)
_LAYER = re.compile(r"blocks\.(\d+)\.")
_OF_THE_MODEL_S_WIDTH = re.compile(r"\.(hook_resid_(pre|mid|post)|hook_(attn|mlp)_out)$")


def check_model(plan: Plan, tell: Callable[[str], None]) -> None:
    """Raise unless a plan's SAEs fit to where the activations of its model are taken.

    Args:
        plan: The plan.
        tell: Told where the model's config cannot be loaded, so that this is not known.

    Raises:
        ReleaseError: If there is no such model or no such place in it, or the activations
            there have another size than `d_in`.
    """
    source = plan.release.source
    if not isinstance(source, LanguageModel):
        return
    name = source.name or source.hub_id
    widths = {TRANSFORMER_LENS: _of_transformer_lens, TRANSFORMERS: _of_transformers}
    width_of = widths.get(plan.runner_value("model_class_name"))
    if width_of is None:
        return
    try:
        width = width_of(name, source)
    except ReleaseError:
        raise
    except Exception as error:  # there are many kinds, of configs that are a model's own too
        if isinstance(error.__cause__ or error, NOT_ON_THE_HUB):
            raise ReleaseError(
                "`language_model` should be one that the Hub has, and lets you read. Found "
                f"{name}. {_first_sentence(error)}"
            ) from None
        whose = (
            "The network did not give" if isinstance(error, OSError) else "Nobody could read"
        )
        tell(
            f"{whose} the config of {name}, with which `d_in` and `hook_name` would have been "
            f"compared. {_first_sentence(error)}"
        )
        return
    for sae_id, config in plan.saes.items():
        if width is not None and config.d_in != width:
            raise ReleaseError(
                f"`sae.d_in` should be {width}, as {source.hook_name} of {name} is. Found "
                f"{config.d_in} in {sae_id}."
            )


def new_release_of(name: str, model: str) -> str:
    """The text of a release of one of TransformerLens's models.

    Args:
        name: The release's name.
        model: The model's.

    Returns:
        What its file says.

    Raises:
        UserError: If TransformerLens has no such model, or its config cannot be loaded.
    """
    try:
        official = get_official_model_name(model)
    except ValueError:
        raise UserError(
            f"`--model` should be one that TransformerLens has. Found {model!r}."
        ) from None
    try:
        config = get_pretrained_model_config(model)
    except OSError as error:
        raise UserError(
            f"The network did not give the config of {model}, which has the size of its "
            f"activations. {_first_sentence(error)}"
        ) from None
    return transformer_lens_release(
        name, model, official=official, d_in=config.d_model, n_layers=config.n_layers
    )


def _of_transformer_lens(name: str, source: LanguageModel) -> int | None:
    config = get_pretrained_model_config(name)
    layer = _LAYER.match(source.hook_name)
    if layer is not None and int(layer[1]) >= config.n_layers:
        raise ReleaseError(
            f"`language_model.hook_name` should be in one of the blocks 0 to "
            f"{config.n_layers - 1} of {name}. Found {source.hook_name}."
        )
    return config.d_model if _OF_THE_MODEL_S_WIDTH.search(source.hook_name) else None


def _of_transformers(name: str, source: LanguageModel) -> int | None:
    place = name
    if source.hub_id == OFFLINE_MODEL and source.revision is None:
        with suppress(UserError):  # the package that holds it is not there
            place = str(model_folder())
    config = AutoConfig.from_pretrained(place, revision=source.revision)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    modules = dict(model.named_modules())
    if source.hook_name not in modules:
        blocks = [each for each in modules if re.search(r"\.\d+$", each)]
        raise ReleaseError(
            f"`language_model.hook_name` should be a module of {name}, like "
            f"{blocks[-1] if blocks else list(modules)[-1]}. Found {source.hook_name}."
        )
    return _width(model, modules[source.hook_name])


def _width(model: torch.nn.Module, module: torch.nn.Module) -> int | None:
    """The size of what a module gives; `None` where the model does not run without weights."""
    found: list[int] = []

    def look(_module: Any, _inputs: Any, output: Any) -> None:
        acts = output if isinstance(output, torch.Tensor) else output[0]
        found.append(acts.shape[-1])

    module.register_forward_hook(look)
    with suppress(Exception), torch.no_grad():  # each model has its own reasons
        model(torch.zeros(1, 2, dtype=torch.long, device="meta"))
    return found[0] if found else None


def _first_sentence(error: BaseException) -> str:
    return one_line(error).partition(". ")[0].rstrip(".") + "."
