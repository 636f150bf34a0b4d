"""Sending files to the Hub: everything in one commit, or nothing."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError, HTTPError  # type: ignore[attr-defined]

from sae_lens_c2r.errors import UserError
from sae_lens_c2r.hub.plan import Plan, PlannedFile, make_plan

_MOVED, _ATTEMPTS = 412, 4
_PASSING = {None, 408, 409, _MOVED, 429, 500, 502, 503, 504}  # None: no answer


@dataclass(frozen=True)
class Published:
    """What is on the Hub after an upload.

    Args:
        commit: The branch's commit that has all files.
        url: Of the commit or of the pull request; `None` if nothing had to be sent.
        sent: How many files were.
    """

    commit: str
    url: str | None
    sent: int


def publish(
    api: HfApi,
    repo_id: str,
    files: Sequence[PlannedFile],
    *,
    message: str,
    revision: str = "main",
    private: bool = True,
    create_pr: bool = False,
    seconds: float = 1.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Published:
    """Bring files to a branch in one commit. What is there already is not sent again.

    Large files are stored first, which changes no branch; then one commit has all of them.
    A branch that has moved in the meantime is looked at again and not overwritten. Where the
    answer to a commit is lost, the branch tells whether it was made.

    Args:
        api: The Hub, with the token.
        repo_id: The repository, made if it does not exist.
        files: What is to be there.
        message: The commit's title.
        revision: The branch, made if it does not exist.
        private: Whether a repository that is made is private.
        create_pr: Whether to propose the commit instead of making it.
        seconds: To wait before the first repetition; twice that before the second, and so on.
        tell: Told of what is done.

    Returns:
        What is on the Hub.

    Raises:
        UserError: If it fails, with what is and is not on the Hub.
    """
    attempt = 1
    while True:
        try:
            plan = make_plan(api, repo_id, files, revision=revision)
            if not plan.files and plan.parent is not None:
                tell(f"{repo_id} has all {len(files)} files already.")
                return Published(plan.parent, None, 0)
            return _send(api, plan, message, private=private, create_pr=create_pr, tell=tell)
        except HTTPError as error:
            status = _status(error)
            last = attempt == (1 if create_pr else _ATTEMPTS)  # or there might be two proposals
            if last or status not in _PASSING:
                raise UserError(_explained(error, repo_id, revision)) from error
            attempt += 1
            why = "the branch has moved" if status == _MOVED else f"{status or 'no'} answer"
            tell(f"{why}: looking at {repo_id} again, {attempt} of {_ATTEMPTS}.")
            time.sleep(0 if status == _MOVED else seconds * 2 ** (attempt - 2))


def _send(
    api: HfApi,
    plan: Plan,
    message: str,
    *,
    private: bool,
    create_pr: bool,
    tell: Callable[[str], None],
) -> Published:
    parent = plan.parent
    if not plan.repo_exists:
        tell(f"Making {plan.repo_id}, {'private' if private else 'public'}.")
        api.create_repo(plan.repo_id, private=private, exist_ok=True)
    if parent is None:
        if plan.revision != "main":
            tell(f"Making the branch {plan.revision}.")
            api.create_branch(plan.repo_id, branch=plan.revision, exist_ok=True)
        parent = api.model_info(plan.repo_id, revision=plan.revision).sha
    additions = [CommitOperationAdd(file.path_in_repo, file.content) for file in plan.files]
    tell(f"Sending {len(additions)} files, {plan.size / 1e6:,.1f} MB.")
    where: dict[str, Any] = {"revision": plan.revision, "create_pr": create_pr}
    try:
        api.preupload_lfs_files(plan.repo_id, additions, **where)
    except RuntimeError as error:  # in which the client wraps those of the network
        raise (error.__cause__ if isinstance(error.__cause__, HTTPError) else error) from None
    commit = api.create_commit(
        plan.repo_id, additions, commit_message=message, parent_commit=parent, **where
    )
    return Published(commit.oid, commit.pr_url or commit.commit_url, len(additions))


def _status(error: HTTPError) -> int | None:
    """The status that the Hub has answered; `None` if the network failed."""
    return error.response.status_code if isinstance(error, HfHubHTTPError) else None


def _explained(error: HTTPError, repo_id: str, revision: str) -> str:
    """What keeps the files from the Hub, and how to go on."""
    where = f"{repo_id} at {revision}"
    server = getattr(error, "server_message", None) or " ".join(str(error).split())
    reasons = {
        401: "there is no token, or the Hub does not accept it: `hf auth login` or HF_TOKEN.",
        403: f"the token may not write to {repo_id}: it should have the role `write` or, if "
        "it is fine-grained, write access to that repository or its organization.",
        404: f"there is no {repo_id} that the token may see.",
        _MOVED: "the branch keeps moving: somebody else is uploading to it.",
    }
    reason = reasons.get(_status(error) or 0, f"{server}.")
    return (
        f"{where} is as it was, or complete; nothing is half there: {reason} Running the same "
        "again goes on: large files that were stored are not sent twice."
    )
