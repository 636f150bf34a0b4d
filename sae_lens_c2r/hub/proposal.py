"""The changes that an upload would make, to be looked at before any is sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import unified_diff
from functools import cached_property

from huggingface_hub import CommitOperationAdd
from rich.console import Console
from rich.syntax import Syntax
from sae_lens.constants import RUNNER_CFG_FILENAME, SAE_WEIGHTS_FILENAME, SPARSITY_FILENAME

from sae_lens_c2r._support.errors import counted
from sae_lens_c2r.hub.local_saes import LocalSAE
from sae_lens_c2r.hub.rendering import printable
from sae_lens_c2r.hub.repository import Snapshot
from sae_lens_c2r.hub.rules import MAIN, Target
from sae_lens_c2r.releases.model import README
from sae_lens_c2r.reporting.tables import terminal_tables
from sae_lens_c2r.saes.record import RECORD

# Beside the weights, what others may have uploaded of the training of the same weights.
_OF_THE_WEIGHTS = (SPARSITY_FILENAME, RUNNER_CFG_FILENAME, RECORD)


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
        return not self.files and self.snapshot.commit is not None

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


def show_proposal(
    proposal: Proposal, console: Console | None = None, *, brief: bool = False
) -> None:
    """Print what an upload would do.

    Args:
        proposal: What would be sent.
        console: Console to print to; by default the standard output.
        brief: Whether to say only how many lines of the card change.
    """
    console = console or Console()
    target, snapshot = proposal.target, proposal.snapshot
    exists = snapshot.private is not None
    visible = "private" if (snapshot.private if exists else not target.public) else "public"
    made = "exists" if exists else "to be made"
    console.print(f"{target.repo_id} at {target.revision}: {visible}, {made}.", markup=False)
    if not exists:
        console.print("There is no such repository, or none that this token sees.")
    elif snapshot.commit is None:
        console.print(f"The branch is to be made, from {MAIN}.")
    unchanged = len(proposal.wanted) - len(proposal.files)
    if not proposal.files:
        console.print(f"All {unchanged} files are there already.")
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
    rows += [[path, "removed", "", ""] for path in proposal.stale]
    headings = ["file", "", "bytes", "SHA-256"]
    tables = terminal_tables(headings, rows, width=console.width, text=(0, 1, 3))
    console.print(*tables, sep="\n")
    console.print(f"{proposal.size / 1e6:,.1f} MB; {unchanged} files are there already.")
    for sae in proposal.saes:
        if sae.removed:
            left_out = ", ".join(map(repr, sae.removed))
            console.print(f"Left out of {sae.sae_id}/cfg.json: {left_out}", markup=False)
    if proposal.card_diff and brief:
        changes = proposal.card_diff.splitlines()[2:]  # after the names of the files
        added, removed = (sum(line.startswith(sign) for line in changes) for sign in "+-")
        console.print(f"{README}: {counted(added, 'line')} added, {removed:,} removed.")
    elif proposal.card_diff:
        diff = printable(proposal.card_diff)
        console.print(Syntax(diff, "diff", background_color="default", word_wrap=True))
