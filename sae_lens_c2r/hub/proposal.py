"""The changes that an upload would make, to be looked at before any is sent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils.sha import git_hash
from rich.console import Console
from rich.syntax import Syntax
from sae_lens.constants import (
    RUNNER_CFG_FILENAME,
    SAE_CFG_FILENAME,
    SAE_WEIGHTS_FILENAME,
    SPARSITY_FILENAME,
)

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.allow_list import check_names
from sae_lens_c2r.hub.card import card_files, printable
from sae_lens_c2r.hub.local_saes import LocalSAE
from sae_lens_c2r.hub.repo_record import RepoRecord
from sae_lens_c2r.releases.model import README
from sae_lens_c2r.saes.record import RECORD

MAIN = "main"
# Beside the weights, what others may have uploaded of the training of the same weights.
_OF_THE_WEIGHTS = (SPARSITY_FILENAME, RUNNER_CFG_FILENAME, RECORD)


@dataclass(frozen=True)
class Target:
    """Where an upload goes.

    Args:
        repo_id: The repository, ``org/name``.
        revision: The branch, made if there is none.
        create_pr: Whether to propose the commit instead of making it.
        public: Whether the repository is public, which an existing one has to be already; by
            default a new one is private.

    Raises:
        UserError: If the repository's name is not fit for the Hub.
    """

    repo_id: str
    revision: str = MAIN
    create_pr: bool = False
    public: bool | None = None

    def __post_init__(self) -> None:
        check_names(repo_id=self.repo_id)


@dataclass(frozen=True)
class Snapshot:
    """The files of a branch of a repository, at one commit."""

    commit: str | None = None  # none if there is no repository
    tree: Mapping[str, RepoFile] = field(default_factory=dict)  # by their paths
    read: Callable[[str], bytes | None] = lambda _: None  # a file, by its path
    private: bool | None = None  # `None` if there is no repository
    has_branch: bool = False  # or else it is of `main`, of which the branch is to be made

    def has(self, addition: CommitOperationAdd) -> bool:
        """Whether a file of the same content is there."""
        found = self.tree.get(addition.path_in_repo)
        if found is None or found.size != addition.upload_info.size:
            return False
        if found.lfs is not None:
            return found.lfs.sha256 == addition.upload_info.sha256.hex()
        with addition.as_file() as file:  # a small one
            return found.blob_id == git_hash(file.read())


@dataclass(frozen=True)
class Proposal:
    """The changes that an upload would make. Nothing is written to find out."""

    target: Target
    snapshot: Snapshot  # what is there
    saes: Sequence[LocalSAE]
    wanted: Sequence[CommitOperationAdd]  # all files that are to be there
    card: str  # `README.md` among them

    @cached_property
    def files(self) -> list[CommitOperationAdd]:
        """The files that would be sent: the others are there already."""
        return [file for file in self.wanted if not self.snapshot.has(file)]

    @property
    def is_there(self) -> bool:
        """Whether the branch has all of it."""
        return not self.files and self.snapshot.has_branch

    @cached_property
    def stale(self) -> list[str]:
        """Files there of the training of weights that are replaced, to be removed with them."""
        sent = {file.path_in_repo for file in self.files} & self.snapshot.tree.keys()
        ids = [each.sae_id for each in self.saes]
        replaced = [each for each in ids if f"{each}/{SAE_WEIGHTS_FILENAME}" in sent]
        beside = [f"{sae_id}/{name}" for sae_id in replaced for name in _OF_THE_WEIGHTS]
        return [path for path in beside if path in self.snapshot.tree]

    @property
    def size(self) -> int:
        """Bytes of the files that would be sent."""
        return sum(file.upload_info.size for file in self.files)

    @property
    def card_diff(self) -> str:
        """The change of `README.md`, as of `diff -u`; empty if there is none."""
        old = (self.snapshot.read(README) or b"").decode().splitlines()
        new = self.card.splitlines()
        return "\n".join(unified_diff(old, new, "on the Hub", "to be sent", lineterm=""))


def take_snapshot(api: HfApi, target: Target) -> Snapshot:
    """Look at a branch; where there is none, at `main`, of which it is made."""
    repo_id, has_branch = target.repo_id, True
    try:
        info = api.model_info(repo_id, revision=target.revision)
    except RevisionNotFoundError:
        info, has_branch = api.model_info(repo_id, revision=MAIN), False
    except RepositoryNotFoundError:
        return Snapshot()
    if target.public is not None and target.public == info.private:
        is_now, was_asked = ("private", "public") if info.private else ("public", "private")
        advice = "Change that in its settings on the Hub, or leave the option out."
        should = f"be what {repo_id} is already, {is_now}"
        raise UserError("public", should, f"--{was_asked}", advice)
    entries = api.list_repo_tree(repo_id, revision=info.sha, recursive=True)
    tree = {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}

    @cache
    def read(path: str) -> bytes | None:
        if path not in tree:
            return None
        with TemporaryDirectory() as folder:
            place = api.hf_hub_download(repo_id, path, revision=info.sha, local_dir=folder)
            return Path(place).read_bytes()

    return Snapshot(info.sha, tree, read, bool(info.private), has_branch)


def propose(api: HfApi, target: Target, saes: Sequence[LocalSAE], repo: RepoRecord) -> Proposal:
    """Compare SAEs, and a card of all that the repository then has, with what is there."""
    snapshot = take_snapshot(api, target)
    card = card_files(repo, snapshot.read, there=snapshot.tree)
    files = [
        CommitOperationAdd(f"{sae.sae_id}/{name}", sae.folder / name)
        for sae in saes
        for name in (SAE_CFG_FILENAME, SAE_WEIGHTS_FILENAME)
    ]
    files += [CommitOperationAdd(path, content) for path, content in card.items()]
    return Proposal(target, snapshot, saes, files, card[README].decode())


def show_proposal(proposal: Proposal, console: Console | None = None) -> None:
    """Print what an upload would do.

    Args:
        proposal: What would be sent.
        console: Console to print to; by default the standard output.
    """
    console = console or Console()
    target, snapshot = proposal.target, proposal.snapshot
    exists = snapshot.private is not None
    visible = "private" if (snapshot.private if exists else not target.public) else "public"
    made = "exists" if exists else "to be made"
    console.print(f"{target.repo_id} at {target.revision}: {visible}, {made}.", markup=False)
    if not exists:
        console.print("There is no such repository, or none that this token sees.")
    elif not snapshot.has_branch:
        console.print(f"The branch is to be made, from {MAIN}.")
    unchanged = len(proposal.wanted) - len(proposal.files)
    if not proposal.files:
        console.print(f"All {unchanged} files are there already.")
        return
    for file in proposal.files:
        done = "replaced" if file.path_in_repo in snapshot.tree else "new"
        line = f"{file.path_in_repo}: {done}, {file.upload_info.size:,} bytes"
        console.print(line, markup=False)
    for path in proposal.stale:
        console.print(f"{path}: removed", markup=False)
    console.print(f"{proposal.size / 1e6:,.1f} MB; {unchanged} files are there already.")
    for sae in proposal.saes:
        if sae.removed:
            left_out = ", ".join(map(repr, sae.removed))
            console.print(f"Left out of {sae.sae_id}/cfg.json: {left_out}", markup=False)
    if proposal.card_diff:
        diff = printable(proposal.card_diff)
        console.print(Syntax(diff, "diff", background_color="default", word_wrap=True))
