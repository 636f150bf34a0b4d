"""Sending files to the Hub: everything in one commit, or nothing."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi, constants
from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r.hub.names import MAIN
from sae_lens_c2r.hub.remote.difference import Difference, PlannedFile, difference
from sae_lens_c2r.hub.remote.refusals import MOVED, explained, status_of, unharmed
from sae_lens_c2r.hub.remote.snapshot import Snapshot, take_snapshot
from sae_lens_c2r.hub.target import Target

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
    target: Target,
    files: Callable[[Snapshot], Sequence[PlannedFile]],
    *,
    message: str,
    first: Difference | None = None,
    seconds: float = 1.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Published:
    """Bring files to a branch in one commit. What is there already is not sent again.

    Large files are stored first, which changes no branch; then one commit has all of them.
    A branch that has moved in the meantime is looked at again and not overwritten. Where the
    answer to a commit is lost, the branch tells whether it was made.

    Args:
        api: The Hub, with the token.
        target: The repository and the branch, made if they do not exist.
        files: What the branch is to hold, given what it holds; asked again if it has moved.
        message: The commit's title.
        first: What is to be changed, if the branch was looked at already.
        seconds: To wait before the first repetition; twice that before the second, and so on.
        tell: Told of what is done.

    Returns:
        What is on the Hub.

    Raises:
        UserError: If it fails, with what is and is not on the Hub.
    """
    repo_id, missing, attempt = target.repo_id, first, 1
    while True:
        try:
            missing = missing or difference(files, take_snapshot(api, target))
            _refuse_changed(target, missing)
            if missing.snapshot.commit is None:
                _make_branch(api, target, missing.snapshot, tell)
                missing = difference(files, take_snapshot(api, target))
            return _send(api, target, message, missing, tell)
        except HTTPError as error:
            missing, status = None, status_of(error)
            proposed = target.create_pr and status != MOVED  # or there might be two proposals
            if proposed or attempt == _ATTEMPTS or status not in _PASSING:
                raise UserError(
                    f"{unharmed(target)} {explained(error, repo_id)} Running the same again "
                    "goes on: large files that were stored are not sent twice."
                ) from error
            attempt += 1
            why = "the branch has moved" if status == MOVED else f"{status or 'no'} answer"
            tell(f"{why}: looking at {repo_id} again, {attempt} of {_ATTEMPTS}.")
            time.sleep(0 if status == MOVED else seconds * 2 ** (attempt - 2))


def _make_branch(
    api: HfApi, target: Target, before: Snapshot, tell: Callable[[str], None]
) -> None:
    if before.private is None:
        tell(f"Making {target.repo_id}, {'public' if target.public else 'private'}.")
        api.create_repo(target.repo_id, private=not target.public, exist_ok=True)
    if target.revision != MAIN:
        tell(f"Making the branch {target.revision}.")
        api.create_branch(target.repo_id, branch=target.revision, exist_ok=True)


def _send(
    api: HfApi, target: Target, message: str, missing: Difference, tell: Callable[[str], None]
) -> Published:
    parent = missing.snapshot.commit
    if not missing.files and parent is not None:
        tell(f"{target.repo_id} has all {missing.unchanged} files already.")
        return Published(parent, None, 0)
    additions = [CommitOperationAdd(file.path_in_repo, file.content) for file in missing.files]
    tell(f"Sending {len(additions)} files, {missing.size / 1e6:,.1f} MB.")
    where: dict[str, Any] = {"revision": target.revision, "create_pr": target.create_pr}
    _store(api, target, additions, where)
    for addition, file in zip(additions, missing.files, strict=True):
        if addition.upload_info.sha256.hex() != file.sha256:
            raise UserError(_changed(target, file))
    made = api.create_commit(
        target.repo_id, additions, commit_message=message, parent_commit=parent, **where
    )
    return Published(made.oid, made.pr_url or made.commit_url, len(additions))


def _refuse_changed(target: Target, missing: Difference) -> None:
    for file in missing.files:
        if file.has_changed():
            raise UserError(_changed(target, file))


def _changed(target: Target, file: PlannedFile) -> str:
    """What is said of a file that is no longer what was checked and agreed to."""
    return (
        f"{unharmed(target)} {file.path_in_repo} should stay as it is until it is sent. It has "
        "changed since it was checked."
    )


def _store(
    api: HfApi, target: Target, additions: list[CommitOperationAdd], where: dict[str, Any]
) -> None:
    """Store the large files."""
    try:
        api.preupload_lfs_files(target.repo_id, additions, **where)
    except HTTPError:
        raise
    except (RuntimeError, ConnectionError, TimeoutError) as error:
        if isinstance(error.__cause__, HTTPError):  # which the client has wrapped
            raise error.__cause__ from None
        if constants.HF_HUB_DISABLE_XET:
            raise
        raise UserError(
            f"{unharmed(target)} Xet, the Hub's storage of large files, cannot be used from "
            f"here: {one_line(error)} With HF_HUB_DISABLE_XET=1 they are sent without it."
        ) from error
