"""A plan's model and text, as far as they can be reached before the training."""

from collections.abc import Callable
from pathlib import Path

from huggingface_hub.constants import HF_HUB_OFFLINE
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

from sae_lens_c2r._support.errors import UserError, first_sentence, is_of_network
from sae_lens_c2r.models.loading import check_model_name, hook_site
from sae_lens_c2r.models.text import read_text, rows_for, within_vocabulary
from sae_lens_c2r.models.text_source import OFFLINE_DATASET
from sae_lens_c2r.releases.model import LanguageModel
from sae_lens_c2r.training.plan import Plan

_NOT_ON_THE_HUB = (RepositoryNotFoundError, RevisionNotFoundError)


def check_model(plan: Plan, log: Callable[[str], None]) -> int | None:
    """Raise unless a plan's SAEs fit their hook; return the size of the model's vocabulary."""
    source = plan.release.source
    if not isinstance(source, LanguageModel):
        return None
    name = source.model
    check_model_name(name, "language_model.name")
    try:
        width, n_tokens, n_vocabulary = hook_site(
            name,
            source.hook_name,
            loader=plan.runner_value("model_class_name"),
            revision=source.revision,
            n_ctx=(plan.runner.get("model_from_pretrained_kwargs") or {}).get("n_ctx"),
            of_a_head=plan.runner.get("hook_head_indices") not in (None, [None], {}),
        )
    except UserError:
        raise
    except Exception as error:  # there are many kinds, of configs that are a model's own too
        if isinstance(error.__cause__ or error, _NOT_ON_THE_HUB):
            should = "be a model on the Hub that you may read"
            raise UserError("language_model", should, name, first_sentence(error)) from None
        if isinstance(error, OSError) and Path(name, "config.json").is_file():
            should = "be a folder whose config.json can be read"
            raise UserError("model", should, name, first_sentence(error)) from None
        whose = (
            "The network did not give" if isinstance(error, OSError) else "We could not read"
        )
        log(
            f"{whose} the config of {name}, so `d_in`, `hook_name` and `context_size` were not "
            f"checked. {first_sentence(error)}"
        )
        return None
    if n_tokens is not None and source.context_size > n_tokens:
        should = f"be at most {n_tokens:,}, the most tokens that {name} takes"
        raise UserError("language_model.context_size", should, f"{source.context_size:,}")
    for sae_id, config in plan.saes.items():
        if width is not None and config.d_in != width:
            should = f"be {width}, the width of {source.hook_name} in {name}"
            raise UserError("sae.d_in", should, f"{config.d_in} in {sae_id}")
    return n_vocabulary


def check_text(plan: Plan, log: Callable[[str], None], n_vocabulary: int | None) -> None:
    """Raise unless the text of a plan's language model can be read, if it can be reached."""
    source = plan.release.source
    if not isinstance(source, LanguageModel) or source.dataset == OFFLINE_DATASET:
        return
    # Only the first rows are read. Without a network, the Hub's cache has all or nothing.
    streamed = plan.runner_value("streaming")
    try:
        text = read_text(source.text, streaming=streamed or not HF_HUB_OFFLINE)
    except UserError as error:
        # What is not to be streamed may be read all the same, as an archive is, or a part.
        if not is_of_network(error) and (streamed or source.text.path):
            raise
        log(f"The text was not looked at. {error}")
    else:
        if n_vocabulary is not None:
            text = within_vocabulary(text, n_vocabulary)
        rows_for(text, source.hub_id or source.name, source.context_size)
