"""An upload from end to end: check, propose, ask, commit, verify, tag."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi, constants, get_token
from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled  # type: ignore[attr-defined]
from rich.console import Console
from rich.syntax import Syntax
from safetensors import SafetensorError

from sae_lens_c2r._support.errors import UserError, counted, one_line
from sae_lens_c2r.hub.card import card_files
from sae_lens_c2r.hub.facts import RepoFacts
from sae_lens_c2r.hub.local_saes import LocalSAE, SAEs, Submission, check_saes, repo_facts
from sae_lens_c2r.hub.repository import (
    MOVED,
    PASSING,
    UNCHANGED,
    Snapshot,
    as_the_hub_knows,
    check_account,
    check_metadata,
    explain_hub_error,
    make_branch,
    status_of,
    take_snapshot,
)
from sae_lens_c2r.hub.rules import MAIN, README, Target
from sae_lens_c2r.hub.tables import printable
from sae_lens_c2r.reporting.tables import fitting_tables
from sae_lens_c2r.saes.encoding import encode_in_saelens_alone, encodes_alike

_FAILURES = (HTTPError, OfflineModeIsEnabled, OSError, SafetensorError, UnicodeError)
_ATTEMPTS = 4
_AGAIN = "Running the same again goes on: large files that were stored are not sent twice."


@dataclass(frozen=True)
class Proposal:
    """The changes that an upload would make. Nothing is written to find out.

    Args:
        target: Where it would go.
        snapshot: What is there.
        saes: The SAEs that would be there.
        files: Those that would be sent.
        unchanged: How many files are there already.
    """

    target: Target
    snapshot: Snapshot
    saes: Sequence[LocalSAE]
    files: Sequence[CommitOperationAdd]
    unchanged: int

    @classmethod
    def of(
        cls,
        target: Target,
        snapshot: Snapshot,
        saes: Sequence[LocalSAE],
        files: Sequence[CommitOperationAdd],
    ) -> "Proposal":
        """Compare what is to be there with what is."""
        missing = [file for file in files if not snapshot.has(file)]
        return cls(target, snapshot, saes, missing, len(files) - len(missing))

    @property
    def size(self) -> int:
        """Bytes of the files that would be sent."""
        return sum(file.upload_info.size for file in self.files)

    @property
    def removed(self) -> dict[str, list[str]]:
        """The keys that were removed from the SAEs' configs, by their ids."""
        return {sae.sae_id: sae.removed for sae in self.saes if sae.removed}

    @property
    def card(self) -> str | None:
        """The card that would be sent; `None` if it is there."""
        for file in self.files:
            if file.path_in_repo == README:
                with file.as_file() as content:
                    return content.read().decode()
        return None

    @property
    def card_diff(self) -> str:
        """The change of `README.md`, as of `diff -u`; empty if there is none."""
        if self.card is None:
            return ""
        old = (self.snapshot.read(README) or b"").decode().splitlines()
        new = self.card.splitlines()
        return "\n".join(unified_diff(old, new, "on the Hub", "to be sent", lineterm=""))


@dataclass(frozen=True)
class Published:
    """The state of the Hub after an upload.

    Args:
        commit: The branch's commit that has all files.
        url: Of the commit or of the pull request; `None` if nothing had to be sent.
        sent: How many files were.
    """

    commit: str
    url: str | None
    sent: int


def upload(
    saes: SAEs | Submission,
    target: Target,
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
        saes: Folders, each of one SAE or of many, or SAEs in memory by their ids; with what
            else is said of them, a `Submission`.
        target: Where to.
        confirm: Shown what would be sent; nothing is unless it returns `True`. By itself all
            is sent.
        dry_run: Whether to send nothing in any case; then the token need not be one that may.
        check_published: Whether to load the SAEs from the Hub without this package.
        message: Of the commit; by itself it names what is added.
        api: The Hub; by itself that of the environment.
        tell: Told of what is done.

    Returns:
        What is on the Hub; `None` if `confirm` said no, or after a dry run.

    Raises:
        UserError: If something keeps them from the Hub, with what is and is not there.
        KeyboardInterrupt: With that, too, if it was interrupted while sending.
    """
    api = api or HfApi()
    submission = Submission.of(saes)
    with TemporaryDirectory(prefix="sae-lens-c2r-") as scratch:
        try:
            if not dry_run:
                check_account(api, target)  # before anything is read, which may take long
            if submission.license is not None:
                check_metadata(api, f"---\nlicense: {submission.license}\n---\n")
            local = check_saes(submission, Path(scratch), tell)
            facts = as_the_hub_knows(api, repo_facts(submission, local, target.repo_id), tell)

            def propose() -> Proposal:
                snapshot = take_snapshot(api, target)
                return _proposal(target, snapshot, local, facts)

            proposal = propose()
            _check_tags(api, proposal)
            if proposal.card is not None:
                check_metadata(api, proposal.card)
            if not confirm(proposal) or dry_run:
                return None
        except _FAILURES as error:
            reason = explain_hub_error(error, target.repo_id)
            raise UserError(f"Nothing was sent. {reason}") from error
        published = publish(api, proposal, propose, message=message, tell=tell)
        _finish(api, proposal, published, check_published=check_published, tell=tell)
    return published


def _proposal(
    target: Target, snapshot: Snapshot, saes: Sequence[LocalSAE], facts: RepoFacts
) -> Proposal:
    """Join SAEs and their card with what a branch holds."""
    files = [addition for sae in saes for addition in sae.additions()]
    card = card_files(facts, snapshot.read)
    files += [CommitOperationAdd(path, content) for path, content in card.items()]
    return Proposal.of(target, snapshot, saes, files)


def _check_tags(api: HfApi, proposal: Proposal) -> None:
    """Raise where the tag is taken, or the branch is a tag."""
    target, snapshot = proposal.target, proposal.snapshot
    if snapshot.private is None or (target.tag is None and target.revision == MAIN):
        return
    for tag in api.list_repo_refs(target.repo_id).tags:
        if tag.name == target.revision:
            raise UserError(f"`revision` should be a branch. Found the tag {tag.name}.")
        done = not proposal.files and tag.target_commit == snapshot.commit
        if tag.name == target.tag and not done:
            raise UserError(
                f"`tag` should be new. Found {target.tag} at {tag.target_commit[:8]} of "
                f"{target.repo_id}."
            )


# Sending


def publish(
    api: HfApi,
    proposal: Proposal,
    propose: Callable[[], Proposal],
    *,
    message: str | None = None,
    seconds: float = 1.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Published:
    """Bring files to a branch in one commit, or none of them; look at it again if it moves."""
    # Large files are stored first, which changes no branch; then one commit has all of them.
    # Where the answer to a commit is lost, the branch tells whether it was made.
    target, attempt = proposal.target, 1
    looked_at: Proposal | None = proposal
    try:
        while True:
            try:
                looked_at = looked_at or propose()
                if looked_at.snapshot.commit is None:
                    make_branch(api, target, looked_at.snapshot, tell)
                    looked_at = propose()
                return _commit(api, looked_at, message, tell)
            except HTTPError as error:
                looked_at, status = None, status_of(error)
                # A proposal whose answer is lost may have been made: there might be two.
                final = target.create_pr and status != MOVED
                if final or attempt == _ATTEMPTS or status not in PASSING:
                    reason = explain_hub_error(error, target.repo_id)
                    raise UserError(f"{UNCHANGED} {reason} {_AGAIN}") from error
                attempt += 1
                why = "the branch has moved" if status == MOVED else f"{status or 'no'} answer"
                tell(f"{why}: looking at {target.repo_id} again, {attempt} of {_ATTEMPTS}.")
                time.sleep(0 if status == MOVED else seconds * 2 ** (attempt - 2))
            except UserError as error:
                raise UserError(f"{UNCHANGED} {error}") from error
            except (OSError, ValueError) as error:  # the client refuses what the Hub would
                reason = explain_hub_error(error, target.repo_id)
                raise UserError(f"{UNCHANGED} {reason}") from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_interrupted(target.repo_id, propose)) from None


def _commit(
    api: HfApi, proposal: Proposal, message: str | None, tell: Callable[[str], None]
) -> Published:
    target, files, parent = proposal.target, proposal.files, proposal.snapshot.commit
    if not files and parent is not None:
        tell(f"{target.repo_id} has all {proposal.unchanged} files already.")
        return Published(parent, None, 0)
    tell(f"Sending {len(files)} files, {proposal.size / 1e6:,.1f} MB.")
    where: dict[str, Any] = {"revision": target.revision, "create_pr": target.create_pr}
    try:
        _store(api, target, files, where)
    finally:
        for sae in proposal.saes:
            sae.refuse_changed()
    saes = proposal.saes
    added = f"Add {saes[0].sae_id}" if len(saes) == 1 else f"Add {len(saes)} SAEs"
    made = api.create_commit(
        target.repo_id, files, commit_message=message or added, parent_commit=parent, **where
    )
    return Published(made.oid, made.pr_url or made.commit_url, len(files))


def _store(
    api: HfApi, target: Target, files: Sequence[CommitOperationAdd], where: dict[str, Any]
) -> None:
    """Store the large files."""
    try:
        api.preupload_lfs_files(target.repo_id, files, **where)
    except HTTPError:
        raise
    except (RuntimeError, ConnectionError, TimeoutError) as error:
        if isinstance(error.__cause__, HTTPError):  # which the client has wrapped
            raise error.__cause__ from None
        if constants.HF_HUB_DISABLE_XET:
            raise
        raise UserError(
            "Xet, the Hub's storage of large files, cannot be used from here: "
            f"{one_line(error)} With HF_HUB_DISABLE_XET=1 they are sent without it."
        ) from error


def _interrupted(repo_id: str, propose: Callable[[], Proposal]) -> str:
    again = "Running the same again goes on."
    try:
        missing = propose().files
    except (HTTPError, UserError):
        return f"Interrupted. {UNCHANGED} {again}"
    if missing:
        return f"Interrupted. Nothing of this upload is on {repo_id} yet. {again}"
    return f"Interrupted. {repo_id} has everything. {again}"


# Afterwards


def _finish(
    api: HfApi,
    proposal: Proposal,
    published: Published,
    *,
    check_published: bool,
    tell: Callable[[str], None],
) -> None:
    """Verify what was published, then tag it."""
    target = proposal.target
    done = f"{target.repo_id} has everything, in the commit {published.commit[:8]}."
    try:
        if check_published:
            tell("Loading it from the Hub, in SAELens alone.")
            _verify(api, target, proposal.saes, published.commit)
        if target.tag is not None:
            try:
                api.create_tag(target.repo_id, tag=target.tag, revision=published.commit)
            except HTTPError:  # unless it is set all the same
                tags = api.list_repo_refs(target.repo_id).tags
                at = {tag.name: tag.target_commit for tag in tags}
                if at.get(target.tag) != published.commit:
                    raise
            tell(f"Tagged {target.tag}.")
    except UserError as error:
        untagged = f" The tag {target.tag} was not set." if target.tag else ""
        raise UserError(f"{done}{untagged} But it was not verified: {error}") from error
    except HTTPError as error:
        raise UserError(
            f"{done} But the tag {target.tag} may not have been set: "
            f"{explain_hub_error(error, target.repo_id)} Running the same again sets it."
        ) from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Interrupted. {done} It was not verified or tagged; running the same again does "
            "both."
        ) from None


def _verify(api: HfApi, target: Target, saes: Sequence[LocalSAE], commit: str) -> None:
    """Load every SAE from the Hub, without us and with an empty cache, and compare it."""
    token = api.token if isinstance(api.token, str) else get_token()
    at = {} if target.on_main else {"commit": commit}
    with TemporaryDirectory() as home:
        environment = {"HF_HOME": home, "HF_ENDPOINT": api.endpoint, "HF_HUB_OFFLINE": "0"}
        for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_XET_CACHE"):
            environment[name] = str(Path(home, name.lower()))
        if token:
            environment["HF_TOKEN"] = token
        encoded = encode_in_saelens_alone(
            [
                ({"repo_id": target.repo_id, "sae_id": sae.sae_id, **at}, sae.inputs)
                for sae in saes
            ],
            environment=environment,
        )
    for sae, found in zip(saes, encoded, strict=True):
        place = f"{sae.sae_id} of {target.repo_id} at {commit[:8]}"
        for name, digest in sae.sha256.items():
            if found.sha256[name] != digest:
                raise UserError(
                    f"{place} should have {name} with the SHA-256 {digest}. Found "
                    f"{found.sha256[name]}."
                )
        if not encodes_alike(found.feature_acts, sae.feature_acts.to_dense()):
            raise UserError(f"{place} should encode a batch as it did here. It does not.")


# Showing


def show_proposal(
    proposal: Proposal, console: Console | None = None, *, brief: bool = False
) -> None:
    """Print what an upload would do.

    Args:
        proposal: What would be sent.
        console: Where; by itself the standard output.
        brief: Whether to say of the card only how many lines change.
    """
    console = console or Console()
    target, snapshot = proposal.target, proposal.snapshot
    visible = target.public if snapshot.private is None else not snapshot.private
    console.print(
        f"{target.repo_id} at {target.revision}: {'public' if visible else 'private'}, "
        f"{'to be made' if snapshot.private is None else 'exists'}.",
        markup=False,
    )
    if not proposal.files:
        console.print(f"All {proposal.unchanged} files are there already.")
        return
    rows = [
        [
            file.path_in_repo,
            "replaced" if file.path_in_repo in snapshot.tree else "new",
            f"{file.upload_info.size:,}",
            file.upload_info.sha256.hex()[:16],
        ]
        for file in proposal.files
    ]
    headings = ["file", "", "bytes", "SHA-256"]
    tables = fitting_tables(headings, rows, width=console.width, text=(0, 1, 3))
    console.print(*tables, sep="\n")
    console.print(
        f"{proposal.size / 1e6:,.1f} MB; {proposal.unchanged} files are there already."
    )
    for sae_id, keys in proposal.removed.items():
        left_out = ", ".join(map(repr, keys))
        console.print(f"Left out of {sae_id}/cfg.json: {left_out}", markup=False)
    if proposal.card_diff and brief:
        changes = proposal.card_diff.splitlines()[2:]  # after the names of the files
        added, removed = (sum(line.startswith(sign) for line in changes) for sign in "+-")
        console.print(f"{README}: {counted(added, 'line')} added, {removed:,} removed.")
    elif proposal.card_diff:
        diff = printable(proposal.card_diff)
        console.print(Syntax(diff, "diff", background_color="default", word_wrap=True))
