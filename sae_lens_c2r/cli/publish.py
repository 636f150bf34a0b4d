"""`sae-lens-c2r card` and `sae-lens-c2r upload`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sae_lens_c2r.cli._shared import console_while_loading, error_boundary, option

if TYPE_CHECKING:
    from sae_lens_c2r.hub import Submission
    from sae_lens_c2r.hub.proposal import Proposal

_FOLDERS = typer.Argument(..., metavar="DIR...", help="Folders, each with one or more SAEs.")
_RELEASE = option(None, "The release of the SAEs.", "--release", unset="what training recorded")
_EVALUATION = option(
    None,
    "The evaluation.json of `evaluate`.",
    unset="evaluation/evaluation.json, here or beside the folders",
)
_BASE_MODEL = option(
    None,
    "The language model on the Hub, ORG/NAME, if SAEs were trained on a local copy of it.",
    unset="what training recorded",
)
_LICENSE = option(None, "Licence of the weights, like mit.", unset="the release's")


def card(
    saes: list[Path] = _FOLDERS,
    out: Path = option(Path("card"), "Folder for README.md and its pictures."),
    repo_id: str | None = option(
        None, "Repository on the Hub.", unset="the release's, as training recorded it"
    ),
    release: str | None = _RELEASE,
    evaluation: Path | None = _EVALUATION,
    license: str | None = _LICENSE,
    base_model: str | None = _BASE_MODEL,
) -> None:
    """Render the card that `upload` would publish, without a network."""
    with error_boundary():
        console = console_while_loading()
        from sae_lens_c2r import hub

        said = {"evaluation": evaluation, "license": license, "base_model": base_model}
        submission = _submission(saes, release, **said)
        path = hub.write_card(submission, out, repo_id=repo_id, tell=console.say)
        console.say(f"Card: {path}")


def upload(
    saes: list[Path] = _FOLDERS,
    repo_id: str = option(..., "Repository on the Hub, ORG/NAME."),
    release: str | None = _RELEASE,
    evaluation: Path | None = _EVALUATION,
    license: str | None = _LICENSE,
    base_model: str | None = _BASE_MODEL,
    revision: str = option("main", "Branch, created if missing."),
    create_pr: bool = option(False, "Propose the commit as a pull request.", "--create-pr"),
    public: bool | None = option(
        None,
        "Whether the repository is public.",
        "--public/--private",
        unset="as it is; a new one is private",
    ),
    dry_run: bool = option(False, "Show what would be sent, and send nothing.", "--dry-run"),
    yes: bool = option(False, "Do not ask before sending.", "--yes"),
) -> None:
    """Publish SAEs on the Hugging Face Hub with a card of what was measured, in one commit."""
    with error_boundary():
        console = console_while_loading()
        from sae_lens_c2r import hub
        from sae_lens_c2r._support.process import stop_requests

        def confirm(proposal: "Proposal") -> bool:
            hub.show_proposal(proposal, console)
            if yes or dry_run or proposal.is_there:
                return True
            return typer.confirm("Send this?")

        said = {"evaluation": evaluation, "license": license, "base_model": base_model}
        submission = _submission(saes, release, **said)
        with stop_requests():
            published = hub.upload(
                submission,
                hub.Target(repo_id, revision, create_pr=create_pr, public=public),
                confirm=confirm,
                dry_run=dry_run,
                tell=console.say,
            )
        if dry_run:
            console.print("Nothing was sent: this was a dry run, which asks for names alone.")
        elif published is not None and published.url is not None:
            print(f"Published: {published.url}")


def _submission(saes: list[Path], release: str | None, **said: Any) -> "Submission":
    from sae_lens_c2r.hub import Submission
    from sae_lens_c2r.releases.files import find_release, read_release

    found = read_release(find_release(release)) if release else None
    return Submission(saes, release=found, **said)
