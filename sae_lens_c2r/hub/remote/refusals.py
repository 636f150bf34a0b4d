"""What the Hub's refusals mean, in words that say what to do."""

import errno
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.errors import (  # type: ignore[attr-defined]
    HfHubHTTPError,
    HTTPError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
)

from sae_lens_c2r._support.errors import UserError

CONFLICT, MOVED = 409, 412
_LOGIN = "`hf auth login`, or HF_TOKEN with a token that may write"


def status_of(error: HTTPError) -> int | None:
    """What the Hub has answered.

    Args:
        error: Of huggingface_hub's client.

    Returns:
        The status; `None` if the network failed.
    """
    return error.response.status_code if isinstance(error, HfHubHTTPError) else None


def explained(error: Exception, repo_id: str) -> str:
    """Say what keeps somebody from the Hub.

    Args:
        error: Of huggingface_hub's client, of the network or of the disk.
        repo_id: The repository.

    Returns:
        A sentence, without the token.
    """
    if isinstance(error, OfflineModeIsEnabled):
        return "The client is told to stay offline: HF_HUB_OFFLINE should not be set."
    if isinstance(error, LocalTokenNotFoundError):
        return f"There is no token: {_LOGIN}."
    if isinstance(error, HTTPError):
        return _explained_answer(error, repo_id)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"The disk is full: {error.filename or 'there is no room for what is sent'}."
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _explained_answer(error: HTTPError, repo_id: str) -> str:
    status = status_of(error)
    if status is None:
        reason = " ".join(str(error).split()) or type(error).__name__
        return f"The Hub does not answer: is there a network? {reason}"
    server = " ".join((getattr(error, "server_message", None) or str(error)).split())
    reasons = {
        401: f"There is no token, or the Hub does not accept it: {_LOGIN}.",
        403: f"The token may not write to {repo_id}: it should have the role `write` or, if "
        "it is fine-grained, write access to that repository or its owner.",
        404: f"There is no {repo_id} that the token may see.",
        MOVED: "The branch keeps moving: somebody else is uploading to it.",
        429: "The Hub has had too many requests from here: try again in some minutes.",
    }
    return reasons.get(status, f"The Hub has answered {status}: {server}")


def check_account(api: HfApi, repo_id: str, *, exists: bool, create_pr: bool) -> str:
    """Ask the Hub whether a token may write, before anything is sent.

    Args:
        api: The Hub, with the token.
        repo_id: The repository.
        exists: Whether there is one.
        create_pr: Whether the upload is only proposed, which anybody may.

    Returns:
        Who the token is of.

    Raises:
        UserError: If there is no token, or it may not, with what it lacks.
    """
    try:
        account = api.whoami()
    except (HTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled) as error:
        raise UserError(explained(error, repo_id)) from error
    name = str(account["name"])
    owner = repo_id.partition("/")[0]
    places = [name, *(each["name"] for each in account.get("orgs", []))]
    token = account.get("auth", {}).get("accessToken", {})
    role = token.get("role")
    if role == "read":
        raise UserError(
            f"The token of {name} should have the role `write`. Found `read`: make another "
            "one in the Hub's settings, under Access Tokens."
        )
    if create_pr and exists:
        return name
    if owner not in places:
        raise UserError(
            f"`repo-id` should be of {' or '.join(places)}, who the token is of. Found "
            f"{repo_id}. An existing repository of somebody else's takes `--create-pr`."
        )
    if role == "fineGrained" and not _may_write(token, repo_id, exists=exists):
        raise UserError(
            f"The token of {name} is fine-grained and lacks write access to "
            f"{repo_id if exists else f'the repositories of {owner}'}: add `repo.write` for it "
            "in the Hub's settings, under Access Tokens."
        )
    return name


def _may_write(token: dict[str, Any], repo_id: str, *, exists: bool) -> bool:
    owner = repo_id.partition("/")[0]
    for scope in token.get("fineGrained", {}).get("scoped", []):
        of_repo = exists and scope.get("entity", {}).get("name") == repo_id
        of_owner = scope.get("entity", {}).get("name") == owner
        if (of_repo or of_owner) and "repo.write" in scope.get("permissions", []):
            return True
    return False
