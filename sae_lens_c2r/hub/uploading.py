"""An upload from end to end: check, propose, ask, commit, verify, tag."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    constants,
    get_token,
)
from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]
from sae_lens.constants import SAE_CFG_FILENAME
from safetensors import SafetensorError

from sae_lens_c2r._support.errors import UserError, one_line, with_advice
from sae_lens_c2r.hub.card import card_files, split_card
from sae_lens_c2r.hub.local_saes import check_saes, repo_record
from sae_lens_c2r.hub.proposal import Proposal
from sae_lens_c2r.hub.repository import (
    MOVED,
    PASSING,
    as_the_hub_knows,
    check_account,
    check_metadata,
    explain_hub_error,
    look_at_branch,
    make_branch,
    status_of,
    take_snapshot,
)
from sae_lens_c2r.hub.rules import MAIN, Target
from sae_lens_c2r.hub.submission import SAEs, Submission
from sae_lens_c2r.releases.model import README
from sae_lens_c2r.saes.encoding import encode_in_saelens_alone, encodes_alike

_FAILURES = (HTTPError, OSError, SafetensorError, ValueError)  # the client has some of each
_UNCHANGED = "The branch is unchanged or complete, never half-written."
_PROPOSED = (
    "A pull request may have been opened: then go on with `--revision refs/pr/N` in place of "
    "`--create-pr`. If there is none, run the same command again."
)
_ATTEMPTS = 4


@dataclass(frozen=True)
class Published:
    """The state of the Hub after an upload."""

    commit: str  # of the branch, with all files
    url: str | None  # of the commit or of the pull request; none if nothing had to be sent
    sent: int  # how many files were
    proposal: Proposal  # which the commit holds


def upload(
    saes: SAEs | Submission,
    target: Target | str,
    *,
    confirm: Callable[[Proposal], bool] = lambda _: True,
    dry_run: bool = False,
    check_published: bool = True,
    message: str | None = None,
    api: HfApi | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Published | None:
    """Publish SAEs with a card of all that their repository then has, in one commit.

    Args:
        saes: Folders, each with one or more SAEs, or SAEs in memory by their ids, or a
            `Submission`, which says more about the SAEs.
        target: The repository and the branch, or the repository alone, like ``org/name``.
        confirm: Called with what would be sent; returns whether to send. By default everything
            is sent.
        dry_run: Whether to send nothing; the token then need not be allowed to write.
        check_published: Whether to compare all files with what the Hub says of them, and to
            load one SAE from there without this package.
        message: Message of the commit; by default it names what is added.
        api: Client of the Hub; by default as the environment says.
        tell: Called with lines on the progress.

    Returns:
        What is on the Hub; `None` if `confirm` said no, or after a dry run.

    Raises:
        UserError: If the upload fails; the text says what is on the Hub.
        KeyboardInterrupt: If interrupted while sending; the text says what is on the Hub.
    """
    api = api or HfApi()
    target = Target(target) if isinstance(target, str) else target
    submission = saes if isinstance(saes, Submission) else Submission(saes)
    with TemporaryDirectory(prefix="sae-lens-c2r-") as scratch:
        with _telling(target, "Nothing was sent."):
            if not dry_run:
                check_account(api, target)  # before anything is read, which may take long
            local = check_saes(submission, Path(scratch), tell)
            known = repo_record(submission, local, target.repo_id, tell)
            repo = as_the_hub_knows(api, known, tell)

            def propose() -> Proposal:
                snapshot = look_at_branch(api, target)
                check = submission.check_secrets
                card = card_files(repo, snapshot.read, there=snapshot.tree, check_secrets=check)
                files = [addition for sae in local for addition in sae.additions()]
                files += [CommitOperationAdd(path, content) for path, content in card.items()]
                return Proposal(target, snapshot, local, files, card[README].decode())

            proposal = propose()
            _check_tags(api, proposal)
            _tell_of_other_ids(proposal, tell)
            if not confirm(proposal) or dry_run:
                return None
        with _telling(target, "Nothing was published."):
            if proposal.card_diff:
                check_metadata(api, split_card(proposal.card)[0])
        with _telling(target, _UNCHANGED, propose):
            published = publish(api, proposal, propose, message=message, tell=tell)
        done = f"{target.repo_id} has everything, in the commit {published.commit[:8]}."
        with _telling(target, f"{done} The commit was not verified or tagged."):
            if check_published:
                tell("Comparing the files on the Hub, and loading an SAE in SAELens alone.")
                _verify(api, published)
        with _telling(target, f"{done} But the tag {target.tag} may not have been set."):
            if target.tag is not None:
                _set_tag(api, target.repo_id, target.tag, published.commit)
                tell(f"Tagged {target.tag}.")
    return published


@contextmanager
def _telling(
    target: Target, state: str, propose: Callable[[], Proposal] | None = None
) -> Iterator[None]:
    """Say in an error what is on the Hub; look there if it is interrupted."""
    try:
        yield
    except UserError as error:
        raise with_advice(error, state) from error
    except _FAILURES as error:
        is_lost = isinstance(error, HTTPError) and status_of(error) in PASSING
        if propose is not None and target.create_pr and is_lost:
            state = _PROPOSED
        raise UserError(f"{state} {explain_hub_error(error, target.repo_id)}") from error
    except KeyboardInterrupt as interruption:
        again = " Run the same command again to continue."
        with suppress(*_FAILURES):
            if propose is not None and target.create_pr:
                state, again = _PROPOSED, ""
            elif propose is not None:
                unsent = f"Nothing of this upload is on {target.repo_id} yet."
                state = f"{target.repo_id} has everything." if propose().is_there else unsent
        interruption.args = (f"Interrupted. {state}{again}",)
        raise


def publish(
    api: HfApi,
    proposal: Proposal,
    propose: Callable[[], Proposal],
    *,
    message: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Published:
    """Bring files to a branch in one commit, or none of them; look at it again if it moves."""
    # Large files are stored first, which changes no branch; then one commit has all of them.
    # Where the answer to a commit is lost, the branch tells whether it was made.
    target, attempt = proposal.target, 1
    while True:
        try:
            if attempt > 1:
                proposal = propose()
            if proposal.snapshot.commit is None:
                make_branch(api, target, proposal.snapshot, tell)
                proposal = propose()
            return _commit(api, proposal, message, tell)
        except HTTPError as error:
            status = status_of(error)
            # A proposal whose answer is lost may have been made: there might be two.
            final = target.create_pr and status != MOVED
            if final or attempt == _ATTEMPTS or status not in PASSING:
                raise
        attempt += 1
        why = "the branch has moved" if status == MOVED else f"{status or 'no'} answer"
        tell(f"Trying {target.repo_id} again, {attempt} of {_ATTEMPTS}: {why}.")
        time.sleep(0 if status == MOVED else 2 ** (attempt - 2))


def _commit(
    api: HfApi, proposal: Proposal, message: str | None, tell: Callable[[str], None]
) -> Published:
    target, files, saes = proposal.target, proposal.files, proposal.saes
    parent = proposal.snapshot.commit
    if not files and parent is not None:
        tell(f"{target.repo_id} has all {len(proposal.wanted)} files already.")
        return Published(parent, None, 0, proposal)
    tell(f"Sending {len(files)} files, {proposal.size / 1e6:,.1f} MB.")
    where: dict[str, Any] = {"revision": target.revision, "create_pr": target.create_pr}
    try:
        # Without the rules of a `.gitignore` there, which would leave files out of the commit.
        api.preupload_lfs_files(target.repo_id, files, gitignore_content="\n", **where)
    except (RuntimeError, ConnectionError, TimeoutError) as error:
        if isinstance(error.__cause__, HTTPError):  # which the client has wrapped
            raise error.__cause__ from None
        if constants.HF_HUB_DISABLE_XET:
            raise
        raise UserError(
            "Xet, the Hub's storage of large files, cannot be used from here: "
            f"{one_line(error)} Set HF_HUB_DISABLE_XET=1 to upload without Xet."
        ) from error
    finally:
        for sae in saes:
            sae.refuse_changed()
    added = f"Add {saes[0].sae_id}" if len(saes) == 1 else f"Add {len(saes)} SAEs"
    removed = [CommitOperationDelete(path) for path in proposal.stale]
    made = api.create_commit(
        target.repo_id,
        [*files, *removed],
        commit_message=message or added,
        parent_commit=parent,
        **where,
    )
    return Published(made.oid, made.pr_url or made.commit_url, len(files), proposal)


def _tell_of_other_ids(proposal: Proposal, tell: Callable[[str], None]) -> None:
    """Tell of SAEs that the repository has by the ids that they were trained with."""
    uploaded = {each.sae_id for each in proposal.saes}
    for sae in proposal.saes:
        trained_as = sae.found.sae_id
        there = f"{trained_as}/{SAE_CFG_FILENAME}" in proposal.snapshot.tree
        if there and trained_as not in uploaded:
            tell(
                f"Warning: {sae.sae_id} was trained as {trained_as}, which the repository has "
                "and keeps. To replace it, upload the folder above, or give `--release`."
            )


def _check_tags(api: HfApi, proposal: Proposal) -> None:
    """Raise where the tag is taken, the branch is a tag, or there is no such pull request."""
    target, snapshot = proposal.target, proposal.snapshot
    if target.revision.startswith("refs/") and snapshot.commit is None:
        found = f"no {target.revision} in {target.repo_id}"
        raise UserError("revision", "be a branch, or an existing pull request", found)
    tags = {} if snapshot.private is None else _tags(api, target.repo_id)
    if target.revision in tags:
        raise UserError("revision", "be a branch", f"the tag {target.revision}")
    at = tags.get(target.tag)
    if at is not None and (proposal.files or at != snapshot.commit):
        raise UserError("tag", "be new", f"{target.tag} at {at[:8]} of {target.repo_id}")


def _tags(api: HfApi, repo_id: str) -> dict[str | None, str]:
    """Return the commits of a repository's tags, by their names."""
    return {tag.name: tag.target_commit for tag in api.list_repo_refs(repo_id).tags}


def _set_tag(api: HfApi, repo_id: str, tag: str, commit: str) -> None:
    try:
        api.create_tag(repo_id, tag=tag, revision=commit)
    except HTTPError:  # unless it is set all the same
        if _tags(api, repo_id).get(tag) != commit:
            raise


def _verify(api: HfApi, published: Published) -> None:
    """Compare what the Hub says of every file, and load one SAE from there, without us."""
    proposal, commit = published.proposal, published.commit
    target, sae = proposal.target, proposal.saes[0]
    repo_id = target.repo_id
    there = take_snapshot(api, repo_id, commit)
    for file in proposal.wanted:
        if not there.has(file):
            should = f"have the SHA-256 {file.upload_info.sha256.hex()}"
            place, of = Path(file.path_in_repo), f"{repo_id} at {commit[:8]}"
            raise UserError(place, should, "another file, or none", of=of)
    with TemporaryDirectory() as home:
        where = {"repo_id": repo_id, "sae_id": sae.sae_id}
        if target.revision != MAIN or target.create_pr:  # which `from_pretrained` cannot name
            api.snapshot_download(
                repo_id, revision=commit, allow_patterns=f"{sae.sae_id}/*", local_dir=home
            )
            where = {"folder": str(Path(home, sae.sae_id))}
        environment = dict.fromkeys(("HF_HOME", "HF_HUB_CACHE", "HF_XET_CACHE"), home)
        environment |= {"HF_ENDPOINT": api.endpoint, "HF_HUB_OFFLINE": "0"}
        if token := api.token if isinstance(api.token, str) else get_token():
            environment["HF_TOKEN"] = token
        [found] = encode_in_saelens_alone([(where, sae.inputs)], environment=environment)
    if not encodes_alike(found.feature_acts, sae.feature_acts.to_dense()):
        raise UserError(
            f"{sae.sae_id} of {repo_id} should encode a batch as it did here. It does not."
        )
