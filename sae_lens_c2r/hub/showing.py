"""A proposal in a terminal: what would be sent, what was left out, what changes in the card."""

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from sae_lens_c2r._support.words import counted
from sae_lens_c2r.hub.card.tables import printable
from sae_lens_c2r.hub.names import README
from sae_lens_c2r.hub.proposal import Proposal
from sae_lens_c2r.hub.remote.difference import Difference
from sae_lens_c2r.reporting.tables import fitting_tables


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
    target, missing = proposal.target, proposal.difference
    private = missing.snapshot.private
    visible = target.public if private is None else not private
    console.print(
        f"{target.repo_id} at {target.revision}: {'public' if visible else 'private'}, "
        f"{'to be made' if private is None else 'exists'}.",
        markup=False,
    )
    if not missing.files:
        console.print(f"All {missing.unchanged} files are there already.")
        return
    console.print(*_tables(missing, console.width), sep="\n")
    console.print(f"{missing.size / 1e6:,.1f} MB; {missing.unchanged} files are there already.")
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


def _tables(missing: Difference, width: int) -> list[Table]:
    rows = []
    for file in missing.files:
        what = "replaced" if file.path_in_repo in missing.replaced else "new"
        rows.append([file.path_in_repo, what, f"{file.size:,}", file.sha256[:16]])
    headings = ["file", "", "bytes", "SHA-256"]
    return fitting_tables(headings, rows, width=width, text=(0, 1, 3))
