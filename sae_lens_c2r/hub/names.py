"""Names on the Hub: of repositories, branches, tags, licences, and of an SAE's folder."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.licenses import LICENSES, LIST_OF_LICENSES, OTHER

MAIN = "main"
RESERVED = README, FACTS, FIGURES = "README.md", "sae-lens-c2r.json", "figures"  # a card's
_SAE_ID = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)*", re.ASCII)
_ID_LENGTH = 200
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"[A-Za-z0-9_](?:[\w.-]|/(?=[\w-]))*", re.ASCII)


def check_repo_id(repo_id: str) -> None:
    """Raise unless a repository's name is one of the Hub's, like ``org/name``."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UserError(f"`repo-id` should be like org/name. {error}") from None
    if repo_id.count("/") != 1 or not repo_id.isascii():
        raise UserError(f"`repo-id` should be like org/name. Found {repo_id!r}.")


def check_reference(name: str, value: str) -> None:
    """Raise unless git and the Hub allow a name for a branch or a tag."""
    parts = value.split("/")
    if (
        not _REVISION.fullmatch(value)
        or ".." in value
        or any(part.endswith((".lock", ".")) for part in parts)
        or parts[0] == "refs"
        or value == "HEAD"
        or _COMMIT.fullmatch(value)
    ):
        raise UserError(
            f"`{name}` should be a branch or tag of git's, like v1. Found {value!r}."
        )


def check_license(license: str | None) -> None:
    """Raise unless a licence is one that the Hub has a name for, or none."""
    if license is None or license in LICENSES - {OTHER}:
        return
    alike = get_close_matches(str(license), LICENSES - {OTHER}, n=3)
    perhaps = f" Is it {' or '.join(sorted(alike))}?" if alike else ""
    raise UserError(
        "`license` should be one of the Hub's, like mit or apache-2.0: "
        f"{LIST_OF_LICENSES} has all. `other` has a name and a link, which {README} of the "
        f"repository says. Found {license!r}.{perhaps}"
    )


def check_base_model(name: str | None) -> None:
    """Raise unless a model is named as on the Hub, ``org/name``, or not at all."""
    if name is None:
        return
    try:
        check_repo_id(name)
    except UserError:
        raise UserError(
            f"`base-model` should be a model on the Hub, like org/name. Found {name!r}."
        ) from None


def check_id(sae_id: str) -> str:
    """The id, if it may be a folder on the Hub, and is none of ours."""
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
    """Raise where an SAE would lie in another one's folder, or in its place."""
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
