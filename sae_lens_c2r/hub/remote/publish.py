"""Sending files to the Hub: everything in one commit, or nothing."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi, constants
from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.remote.plan import Files, Plan, PlannedFile, make_plan
from sae_lens_c2r.hub.remote.refusals import MOVED, explained, status_of

_ATTEMPTS = 4
_PASSING = {None, 408, 409, MOVED, 429, 500, 502, 503, 504}  # None: no answer


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
    files: Files,
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
        files: What is to be there, as of `make_plan`; asked again where the branch has moved.
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
                tell(f"{repo_id} has all {plan.unchanged} files already.")
                return Published(plan.parent, None, 0)
            return _send(api, plan, message, private=private, create_pr=create_pr, tell=tell)
        except HTTPError as error:
            status = status_of(error)
            last = attempt == (1 if create_pr else _ATTEMPTS)  # or there might be two proposals
            if last or status not in _PASSING:
                raise UserError(_stopped(error, repo_id, revision)) from error
            attempt += 1
            why = "the branch has moved" if status == MOVED else f"{status or 'no'} answer"
            tell(f"{why}: looking at {repo_id} again, {attempt} of {_ATTEMPTS}.")
            time.sleep(0 if status == MOVED else seconds * 2 ** (attempt - 2))


def _send(
    api: HfApi,
    plan: Plan,
    message: str,
    *,
    private: bool,
    create_pr: bool,
    tell: Callable[[str], None],
) -> Published:
    _refuse_changed(plan)
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
    _store(api, plan, additions, where)
    for addition, file in zip(additions, plan.files, strict=True):
        if addition.upload_info.sha256.hex() != file.sha256:
            raise UserError(_changed(plan, file))
    commit = api.create_commit(
        plan.repo_id, additions, commit_message=message, parent_commit=parent, **where
    )
    return Published(commit.oid, commit.pr_url or commit.commit_url, len(additions))


def _refuse_changed(plan: Plan) -> None:
    """Raise where a file is no longer what was checked and agreed to."""
    for file in plan.files:
        if isinstance(file.content, bytes):
            continue
        try:
            same = PlannedFile.of(file.path_in_repo, file.content) == file
        except OSError:
            same = False
        if not same:
            raise UserError(_changed(plan, file))


def _changed(plan: Plan, file: PlannedFile) -> str:
    return (
        f"{unharmed(plan.repo_id, plan.revision)} {file.path_in_repo} should stay as it is "
        "until it is sent. It has changed since it was checked."
    )


def _store(
    api: HfApi, plan: Plan, additions: list[CommitOperationAdd], where: dict[str, Any]
) -> None:
    """Store the large files."""
    try:
        api.preupload_lfs_files(plan.repo_id, additions, **where)
    except HTTPError:
        raise
    except (RuntimeError, ConnectionError, TimeoutError) as error:
        if isinstance(error.__cause__, HTTPError):  # which the client has wrapped
            raise error.__cause__ from None
        if constants.HF_HUB_DISABLE_XET:
            raise
        raise UserError(
            f"{unharmed(plan.repo_id, plan.revision)} Xet, the Hub's storage of large files, "
            f"cannot be used from here: {' '.join(str(error).split())} With "
            "HF_HUB_DISABLE_XET=1 they are sent without it."
        ) from error


def _stopped(error: HTTPError, repo_id: str, revision: str) -> str:
    """What keeps the files from the Hub, and how to go on."""
    return (
        f"{unharmed(repo_id, revision)} {explained(error, repo_id)} Running the same again "
        "goes on: large files that were stored are not sent twice."
    )


def unharmed(repo_id: str, revision: str) -> str:
    """What an upload that has failed leaves.

    Args:
        repo_id: The repository.
        revision: The branch.

    Returns:
        A sentence.
    """
    return f"{repo_id} at {revision} is as it was, or complete; nothing is half there."
