"""A plan beside the config of its language model: what training would find out later."""

from collections.abc import Callable

from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r.releases.first import transformer_lens_release
from sae_lens_c2r.releases.language_models import (
    HookSite,
    hook_site,
    official_name,
    pretrained_config,
)
from sae_lens_c2r.releases.model import LanguageModel, ReleaseError
from sae_lens_c2r.training.plan import Plan

NOT_ON_THE_HUB = (RepositoryNotFoundError, RevisionNotFoundError)


def check_model(plan: Plan, tell: Callable[[str], None]) -> None:
    """Raise unless a plan's SAEs fit to where the activations of its model are taken.

    Args:
        plan: The plan.
        tell: Told where the model's config cannot be loaded, so that this is not known.

    Raises:
        ReleaseError: If there is no such model, the activations have another size than
            `d_in`, or a row has more tokens than the model takes.
        UserError: If there is no such place in the model.
    """
    source = plan.release.source
    if not isinstance(source, LanguageModel):
        return
    name = source.name or source.hub_id
    try:
        site = hook_site(
            name,
            source.hook_name,
            loader=plan.runner_value("model_class_name"),
            revision=source.revision,
            n_ctx=(plan.runner.get("model_from_pretrained_kwargs") or {}).get("n_ctx"),
        )
    except UserError:
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
    _check_site(plan, source, name, site)


def _check_site(plan: Plan, source: LanguageModel, name: str, site: HookSite) -> None:
    if site.n_tokens is not None and source.context_size > site.n_tokens:
        raise ReleaseError(
            f"`language_model.context_size` should be at most {site.n_tokens:,}, the tokens "
            f"that {name} takes. Found {source.context_size:,}."
        )
    for sae_id, config in plan.saes.items():
        if site.width is not None and config.d_in != site.width:
            raise ReleaseError(
                f"`sae.d_in` should be {site.width}, as {source.hook_name} of {name} is. "
                f"Found {config.d_in} in {sae_id}."
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
    official = official_name(model)
    if official is None:
        raise UserError(f"`--model` should be one that TransformerLens has. Found {model!r}.")
    try:
        config = pretrained_config(model)
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


def _first_sentence(error: BaseException) -> str:
    return one_line(error).partition(". ")[0].rstrip(".") + "."
