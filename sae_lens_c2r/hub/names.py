"""Names on the Hub: of repositories, branches and tags, and what it calls models and texts."""

import re
from collections.abc import Iterable

from huggingface_hub import HfApi, ModelInfo
from huggingface_hub.errors import HFValidationError, HTTPError  # type: ignore[attr-defined]
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.remote.refusals import status_of

_SAE_ID = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)*", re.ASCII)
_ID_LENGTH = 200
RESERVED = ("README.md", "sae-lens-c2r.json", "figures")
_COMMIT = re.compile(r"[0-9a-f]{40}")
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
        if value is not None and not _is_name_of_git(value):
            raise UserError(
                f"`{name}` should be a branch or tag of git's, like v1. Found {value!r}."
            )
    if license is not None and (not _LICENSE.fullmatch(license) or license == "other"):
        raise UserError(
            "`license` should be one of the Hub's, like mit or apache-2.0. `other` has a name "
            f"and a link, which README.md of the repository says. Found {license!r}."
        )


def _is_name_of_git(value: str) -> bool:
    parts = value.split("/")
    return (
        bool(_REVISION.fullmatch(value))
        and ".." not in value
        and not any(part.endswith((".lock", ".")) for part in parts)
        and parts[0] != "refs"
        and value != "HEAD"
        and not _COMMIT.fullmatch(value)
    )


def check_id(sae_id: str) -> str:
    """Refuse an id that is no folder on the Hub, or one of ours.

    Args:
        sae_id: The id.

    Returns:
        The same.

    Raises:
        UserError: If it is not fit.
    """
    if not _SAE_ID.fullmatch(sae_id) or len(sae_id) > _ID_LENGTH:
        raise UserError(
            "An SAE's id should be folders of letters, digits, `_`, `-` and `.`, at most "
            f"{_ID_LENGTH} characters. Found {sae_id!r}."
        )
    if sae_id.partition("/")[0].lower() in map(str.lower, RESERVED):
        raise UserError(
            f"An SAE's id should not begin with {', '.join(RESERVED)}, which a card needs. "
            f"Found {sae_id!r}."
        )
    return sae_id


def refuse_nested(sae_ids: Iterable[str]) -> None:
    """Refuse SAEs of which one would lie in another one's folder, or take its place.

    Args:
        sae_ids: All ids of a repository.

    Raises:
        UserError: If there are such, also where a disk does not tell `A` from `a`.
    """
    seen: dict[str, str] = {}
    for sae_id in sorted(sae_ids, key=len):
        parts = sae_id.lower().split("/")
        for length in range(1, len(parts) + 1):
            other = seen.get("/".join(parts[:length]))
            if other is not None:
                raise UserError(
                    f"An SAE should not lie in another one's folder. Found {sae_id} and "
                    f"{other}."
                )
        seen[sae_id.lower()] = sae_id


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
    """What the Hub calls a text that everybody may see.

    Args:
        api: The Hub.
        name: The text's name.

    Returns:
        Its id; `None` if the Hub does not have it, or not for everybody.

    Raises:
        HTTPError: Of huggingface_hub, if the Hub fails otherwise.
    """
    if not name or "/" not in name:
        return None
    try:
        found = api.dataset_info(name)
    except HFValidationError:
        return None
    except HTTPError as error:
        if status_of(error) in _NOT_HERE:
            return None
        raise
    return None if found.private else found.id


def _names_of_model(name: str | None) -> list[str]:
    if not name:
        return []
    from transformer_lens.loading_from_pretrained import get_official_model_name

    try:
        official = get_official_model_name(name)
    except ValueError:  # none of TransformerLens's
        official = name
    return list(dict.fromkeys([official, name]))
