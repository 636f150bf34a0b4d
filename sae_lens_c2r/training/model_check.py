"""A plan beside the config of its language model: what training would find out later.

The config alone is loaded, and of `transformers` a model without weights is made of it.
"""

import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, NamedTuple

import torch
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
from transformer_lens import HookedTransformer, HookedTransformerConfig
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


class _Place(NamedTuple):
    """Where activations are taken: `None` for what is not known without the weights."""

    width: int | None
    n_tokens: int | None  # the most in a row that the model takes


def check_model(plan: Plan, tell: Callable[[str], None]) -> None:
    """Raise unless a plan's SAEs fit to where the activations of its model are taken.

    Args:
        plan: The plan.
        tell: Told where the model's config cannot be loaded, so that this is not known.

    Raises:
        ReleaseError: If there is no such model or no such place in it, the activations there
            have another size than `d_in`, or a row has more tokens than the model takes.
    """
    source = plan.release.source
    if not isinstance(source, LanguageModel):
        return
    name = source.name or source.hub_id
    places = {TRANSFORMER_LENS: _of_transformer_lens, TRANSFORMERS: _of_transformers}
    place_of = places.get(plan.runner_value("model_class_name"))
    if place_of is None:
        return
    try:
        place = place_of(name, source, plan.runner.get("model_from_pretrained_kwargs") or {})
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
            f"{whose} the config of {name}, with which `d_in`, `hook_name` and `context_size` "
            f"would have been compared. {_first_sentence(error)}"
        )
        return
    _check_place(plan, source, name, place)


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
        name,
        model,
        official=official,
        d_in=config.d_model,
        n_layers=config.n_layers,
        n_tokens=config.n_ctx,
    )


def _check_place(plan: Plan, source: LanguageModel, name: str, place: _Place) -> None:
    if place.n_tokens is not None and source.context_size > place.n_tokens:
        raise ReleaseError(
            f"`language_model.context_size` should be at most {place.n_tokens:,}, the tokens "
            f"that {name} takes. Found {source.context_size:,}."
        )
    for sae_id, config in plan.saes.items():
        if place.width is not None and config.d_in != place.width:
            raise ReleaseError(
                f"`sae.d_in` should be {place.width}, as {source.hook_name} of {name} is. "
                f"Found {config.d_in} in {sae_id}."
            )


def _of_transformer_lens(
    name: str, source: LanguageModel, options: Mapping[str, Any]
) -> _Place:
    config = get_pretrained_model_config(name, n_ctx=options.get("n_ctx"))
    layer = _LAYER.match(source.hook_name)
    if layer is not None and int(layer[1]) >= config.n_layers:
        raise ReleaseError(
            f"`language_model.hook_name` should be in one of the blocks 0 to "
            f"{config.n_layers - 1} of {name}. Found {source.hook_name}."
        )
    hooks = _hooks(config)
    if source.hook_name not in hooks:
        close = get_close_matches(source.hook_name, hooks, n=1) or hooks[-1:]
        raise ReleaseError(
            f"`language_model.hook_name` should be one that TransformerLens has in {name}, "
            f"like {close[0]}. Found {source.hook_name}."
        )
    is_of_the_model_s = _OF_THE_MODEL_S_WIDTH.search(source.hook_name)
    return _Place(config.d_model if is_of_the_model_s else None, config.n_ctx)


def _hooks(config: HookedTransformerConfig) -> list[str]:
    """The names of a model's hooks."""
    config.tokenizer_name = None  # it would be loaded
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return list(HookedTransformer(config, move_to_device=False).hook_dict)


def _of_transformers(name: str, source: LanguageModel, _options: Mapping[str, Any]) -> _Place:
    place = name
    if source.hub_id == OFFLINE_MODEL and source.revision is None:
        with suppress(UserError):  # the package that holds it is not there
            place = str(model_folder())
    config = AutoConfig.from_pretrained(  # which would ask whether a model's code may be run
        place, revision=source.revision, trust_remote_code=False
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    modules = dict(model.named_modules())
    if source.hook_name not in modules:
        blocks = [each for each in modules if re.search(r"\.\d+$", each)]
        raise ReleaseError(
            f"`language_model.hook_name` should be a module of {name}, like "
            f"{blocks[-1] if blocks else list(modules)[-1]}. Found {source.hook_name}."
        )
    width = _width(model, modules[source.hook_name], source)
    return _Place(width, getattr(config, "max_position_embeddings", None))


def _width(
    model: torch.nn.Module, module: torch.nn.Module, source: LanguageModel
) -> int | None:
    """The size of what a module gives; `None` where the model does not run without weights."""
    found: list[Any] = []

    def look(_module: Any, _inputs: Any, output: Any) -> None:
        found.append(output[0] if isinstance(output, tuple) else output)

    module.register_forward_hook(look)
    with suppress(Exception), torch.no_grad():  # each model has its own reasons
        model(torch.zeros(1, 2, dtype=torch.long, device="meta"))
    if found and not isinstance(found[0], torch.Tensor):
        raise ReleaseError(
            "`language_model.hook_name` should be a module that gives a tensor, or a tuple "
            f"that begins with one. {source.hook_name} gives {type(found[0]).__name__}."
        )
    return found[0].shape[-1] if found else None


def _first_sentence(error: BaseException) -> str:
    return one_line(error).partition(". ")[0].rstrip(".") + "."
