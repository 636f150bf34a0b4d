"""A plan beside the config of its language model: what training would find out later."""

from collections.abc import Callable

from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

from sae_lens_c2r._support.errors import UserError, first_sentence
from sae_lens_c2r.releases.language_models import hook_site
from sae_lens_c2r.releases.model import LanguageModel, ReleaseError
from sae_lens_c2r.training.plan import Plan

NOT_ON_THE_HUB = (RepositoryNotFoundError, RevisionNotFoundError)


def check_model(plan: Plan, log: Callable[[str], None]) -> None:
    """Raise unless a plan's SAEs fit to where the activations of its model are taken."""
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
                f"{name}. {first_sentence(error)}"
            ) from None
        whose = (
            "The network did not give" if isinstance(error, OSError) else "Nobody could read"
        )
        log(
            f"{whose} the config of {name}, with which `d_in`, `hook_name` and `context_size` "
            f"would have been compared. {first_sentence(error)}"
        )
        return
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
