"""Names on the Hub: of repositories, branches and tags, and what it calls models and texts."""

import re

from huggingface_hub import HfApi, ModelInfo
from huggingface_hub.errors import HFValidationError, HTTPError  # type: ignore[attr-defined]
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from sae_lens_c2r.errors import UserError
from sae_lens_c2r.hub.refusals import status_of

_NOT_HERE = {401, 403, 404}
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_REVISION = re.compile(r"[A-Za-z0-9_](?:[\w.-]|/(?=[\w-]))*", re.ASCII)


def check_names(
    *, repo_id: str, revision: str = "main", tag: str | None = None, license: str | None = None
) -> None:
    """Refuse names that the Hub would refuse, before anything is done.

    Args:
        repo_id: The repository.
        revision: The branch.
        tag: The tag.
        license: The licence.

    Raises:
        UserError: If one is not fit, with what it should be.
    """
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UserError(f"`repo-id` should be like org/name. {error}") from None
    if repo_id.count("/") != 1 or not repo_id.isascii():
        raise UserError(f"`repo-id` should be like org/name. Found {repo_id!r}.")
    for name, value in (("revision", revision), ("tag", tag)):
        whole = value is None or (_REVISION.fullmatch(value) and ".." not in value)
        if not whole or (value or "").endswith((".lock", ".", "/")):
            raise UserError(f"`{name}` should be a name of git's, like v1. Found {value!r}.")
    if license is not None and (not _LICENSE.fullmatch(license) or license == "other"):
        raise UserError(
            "`license` should be one of the Hub's, like mit or apache-2.0. `other` has a name "
            f"and a link, which README.md of the repository says. Found {license!r}."
        )


def known_model(api: HfApi, name: str | None) -> ModelInfo | None:
    """What the Hub says of a model.

    Args:
        api: The Hub.
        name: The model's name on the Hub, or TransformerLens's.

    Returns:
        It, under its own id, gated or not; `None` if the Hub does not have it, or not for
        this token.

    Raises:
        HTTPError: Of huggingface_hub, if the Hub fails otherwise.
    """
    for each in _names_of_model(name):
        try:
            found = api.model_info(each)
        except HFValidationError:
            continue
        except HTTPError as error:
            if status_of(error) in _NOT_HERE:
                continue
            raise
        return found if "/" in found.id else None
    return None


def known_dataset(api: HfApi, name: str | None) -> str | None:
    """What the Hub calls a text.

    Args:
        api: The Hub.
        name: The text's name.

    Returns:
        Its id; `None` if the Hub does not have it, or not for this token.

    Raises:
        HTTPError: Of huggingface_hub, if the Hub fails otherwise.
    """
    if not name or "/" not in name:
        return None
    try:
        return api.dataset_info(name).id
    except HFValidationError:
        return None
    except HTTPError as error:
        if status_of(error) in _NOT_HERE:
            return None
        raise


def _names_of_model(name: str | None) -> list[str]:
    if not name:
        return []
    from transformer_lens.loading_from_pretrained import get_official_model_name

    try:
        official = get_official_model_name(name)
    except ValueError:  # none of TransformerLens's
        official = name
    return list(dict.fromkeys([official, name]))
