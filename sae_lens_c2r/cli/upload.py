"""`sae-lens-c2r upload`."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.cli._console import console_while_loading, say
from sae_lens_c2r.cli._errors import error_boundary
from sae_lens_c2r.cli._options import EvaluationOption, LicenseOption, ReleaseOption

if TYPE_CHECKING:
    from sae_lens_c2r.hub.proposal import Proposal


def upload(
    saes: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Folders, each of one SAE or of many."),
    ],
    repo_id: Annotated[str, typer.Option(help="Repository on the Hub, ORG/NAME.")],
    release: ReleaseOption = None,
    evaluation: EvaluationOption = None,
    license: LicenseOption = None,
    revision: Annotated[str, typer.Option(help="Branch, made if there is none.")] = "main",
    tag: Annotated[
        str | None, typer.Option(help="Tag for the commit.", show_default="none")
    ] = None,
    create_pr: Annotated[
        bool, typer.Option("--create-pr", help="Propose the commit as a pull request.")
    ] = False,
    public: Annotated[
        bool, typer.Option("--public", help="Make a new repository public, not private.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent, and send nothing.")
    ] = False,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not load the SAEs from the Hub afterwards.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before sending.")] = False,
) -> None:
    """Publish SAEs on the Hugging Face Hub with a card of what was measured, in one commit."""
    with error_boundary("Interrupted. Nothing was sent."):
        console = console_while_loading()
        from sae_lens_c2r._support.stopping import stop_requests
        from sae_lens_c2r.hub.proposal import Target
        from sae_lens_c2r.hub.upload import upload as upload_all
        from sae_lens_c2r.releases.files import find_release, read_release

        def agree(proposal: "Proposal") -> bool:
            _show(proposal, console, public=public)
            if dry_run:
                console.print("Nothing was sent: this is what would be.")
                return False
            if not proposal.plan.files or yes:
                return True
            if not sys.stdin.isatty():
                raise UserError("`yes` should be given where nobody can be asked.")
            return typer.confirm("Send this?")

        target = Target(repo_id, revision, tag=tag, create_pr=create_pr, public=public)
        with stop_requests():
            published = upload_all(
                saes,
                target,
                agree=agree,
                release=read_release(find_release(release)) if release else None,
                evaluation=evaluation,
                license=license,
                check_published=not no_verify,
                tell=partial(say, console),
            )
        if published is not None and published.url is not None:
            say(console, f"Published: {published.url}")


def _show(proposal: "Proposal", console: Console, *, public: bool) -> None:
    """What would be sent, what was left out, and what would change in the card."""
    from rich.syntax import Syntax

    from sae_lens_c2r.hub.card.tables import printable
    from sae_lens_c2r.reporting.tables import terminal_table

    plan = proposal.plan
    visible = public if plan.private is None else not plan.private
    console.print(
        f"{plan.repo_id} at {plan.revision}: {'public' if visible else 'private'}, "
        f"{'to be made' if plan.private is None else 'exists'}.",
        markup=False,
    )
    if not plan.files:
        console.print(f"All {plan.unchanged} files are there already.")
        return
    rows = []
    for file in plan.files:
        what = "replaced" if file.path_in_repo in plan.replaced else "new"
        rows.append([file.path_in_repo, what, f"{file.size:,}", file.sha256[:16]])
    headings = ["file", "", "bytes", "SHA-256"]
    console.print(terminal_table(headings, rows, text=(0, 1, 3)))
    console.print(f"{plan.size / 1e6:,.1f} MB; {plan.unchanged} files are there already.")
    for sae_id, keys in proposal.removed.items():
        left_out = ", ".join(map(repr, keys))
        console.print(f"Left out of {sae_id}/cfg.json: {left_out}", markup=False)
    if proposal.card_diff:
        diff = printable(proposal.card_diff)
        console.print(Syntax(diff, "diff", background_color="default", word_wrap=True))
