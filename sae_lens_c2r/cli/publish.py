"""`sae-lens-c2r card` and `sae-lens-c2r upload`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.cli._console import console_while_loading, error_boundary

if TYPE_CHECKING:
    from sae_lens_c2r.hub import Submission
    from sae_lens_c2r.hub.uploading import Proposal

_FoldersArgument = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Folders, each of one SAE or of many.")
]
_ReleaseOption = Annotated[
    str | None,
    typer.Option(
        "--release", help="The release of the SAEs.", show_default="what training recorded"
    ),
]
_EvaluationOption = Annotated[
    Path | None,
    typer.Option(
        help="What `evaluate` has measured.",
        show_default="evaluation/evaluation.json, here or beside the folders",
    ),
]
_BaseModelOption = Annotated[
    str | None,
    typer.Option(
        help="The language model on the Hub, ORG/NAME: for SAEs that were trained from a "
        "folder of it.",
        show_default="what training recorded",
    ),
]
_LicenseOption = Annotated[
    str | None,
    typer.Option(help="Licence of the weights, like mit.", show_default="the release's"),
]


def card(
    saes: _FoldersArgument,
    out: Annotated[Path, typer.Option(help="Folder for README.md and its pictures.")] = Path(
        "card"
    ),
    repo_id: Annotated[
        str | None,
        typer.Option(
            help="Repository on the Hub.", show_default="the release's, as training recorded it"
        ),
    ] = None,
    release: _ReleaseOption = None,
    evaluation: _EvaluationOption = None,
    license: _LicenseOption = None,
    base_model: _BaseModelOption = None,
) -> None:
    """Render the card that `upload` would publish, without a network."""
    with error_boundary("Interrupted."):
        console = console_while_loading()
        from sae_lens_c2r import hub

        submission = _submission(
            saes, release, evaluation=evaluation, license=license, base_model=base_model
        )
        path = hub.write_card(submission, out, repo_id=repo_id, tell=console.say)
        console.say(f"Card: {path}")


def upload(
    saes: _FoldersArgument,
    repo_id: Annotated[str, typer.Option(help="Repository on the Hub, ORG/NAME.")],
    release: _ReleaseOption = None,
    evaluation: _EvaluationOption = None,
    license: _LicenseOption = None,
    base_model: _BaseModelOption = None,
    revision: Annotated[str, typer.Option(help="Branch, made if there is none.")] = "main",
    tag: Annotated[
        str | None, typer.Option(help="Tag for the commit.", show_default="none")
    ] = None,
    create_pr: Annotated[
        bool, typer.Option("--create-pr", help="Propose the commit as a pull request.")
    ] = False,
    public: Annotated[
        bool, typer.Option("--public/--private", help="What a new repository is.")
    ] = False,
    commit_message: Annotated[
        str | None,
        typer.Option(help="Message of the commit.", show_default="what is added"),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help="Token of the Hub's.", show_default="that of `hf auth login`"),
    ] = None,
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
        from huggingface_hub import HfApi

        from sae_lens_c2r import hub
        from sae_lens_c2r._support.process import stop_requests

        def confirm(proposal: "Proposal") -> bool:
            hub.show_proposal(proposal, console, brief=yes)
            if dry_run:
                console.print("Nothing was sent: this is what would be.")
                return False
            if yes or not proposal.files:
                return True
            if not sys.stdin.isatty():
                raise UserError("`yes` should be given where nobody can be asked.")
            return typer.confirm("Send this?")

        with stop_requests():
            published = hub.upload(
                _submission(
                    saes, release, evaluation=evaluation, license=license, base_model=base_model
                ),
                hub.Target(repo_id, revision, tag=tag, create_pr=create_pr, public=public),
                confirm=confirm,
                dry_run=dry_run,
                check_published=not no_verify,
                message=commit_message,
                api=HfApi(token=token),
                tell=console.say,
            )
        if published is not None and published.url is not None:
            console.say(f"Published: {published.url}")


def _submission(saes: list[Path], release: str | None, **said: Any) -> "Submission":
    from sae_lens_c2r.hub import Submission
    from sae_lens_c2r.releases.files import find_release, read_release

    found = read_release(find_release(release)) if release else None
    return Submission(saes, release=found, **said)
