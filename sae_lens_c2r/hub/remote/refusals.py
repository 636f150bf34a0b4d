"""What the Hub's refusals mean, in words that say what to do."""

import errno

from huggingface_hub.errors import (  # type: ignore[attr-defined]
    HfHubHTTPError,
    HTTPError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
)

from sae_lens_c2r._support.errors import one_line
from sae_lens_c2r.hub.target import Target

FORBIDDEN, CONFLICT, MOVED = 403, 409, 412
_LOGIN = "`hf auth login`, or HF_TOKEN with a token that may write"


def status_of(error: HTTPError) -> int | None:
    """What the Hub has answered; `None` if the network failed."""
    return error.response.status_code if isinstance(error, HfHubHTTPError) else None


def explained(error: Exception, repo_id: str) -> str:
    """What keeps somebody from the Hub, in a sentence without the token."""
    if isinstance(error, OfflineModeIsEnabled):
        return "The client is told to stay offline: HF_HUB_OFFLINE should not be set."
    if isinstance(error, LocalTokenNotFoundError):
        return f"There is no token: {_LOGIN}."
    if isinstance(error, HTTPError):
        return _explained_answer(error, repo_id)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"The disk is full: {error.filename or 'there is no room for what is sent'}."
    return f"{type(error).__name__}: {one_line(error)}"


def _explained_answer(error: HTTPError, repo_id: str) -> str:
    status = status_of(error)
    if status is None:
        return f"The Hub does not answer: is there a network? {one_line(error)}"
    server = " ".join((getattr(error, "server_message", None) or str(error)).split())
    reasons = {
        401: f"There is no token, or the Hub does not accept it: {_LOGIN}.",
        FORBIDDEN: f"The token may not write to {repo_id}: it should have the role `write` "
        "or, if it is fine-grained, write access to that repository or its owner.",
        404: f"There is no {repo_id} that the token may see.",
        MOVED: "The branch keeps moving: somebody else is uploading to it.",
        429: "The Hub has had too many requests from here: try again in some minutes.",
    }
    return reasons.get(status, f"The Hub has answered {status}: {server}")


def unharmed(target: Target) -> str:
    """What an upload that has failed leaves, in a sentence."""
    return (
        f"{target.repo_id} at {target.revision} is as it was, or complete; nothing is half "
        "there."
    )
