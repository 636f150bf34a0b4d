"""`sae-lens-c2r card`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sae_lens_c2r.cli._console import console_while_loading, error_boundary, say
from sae_lens_c2r.cli._options import (
    BaseModelOption,
    EvaluationOption,
    LicenseOption,
    ReleaseOption,
)


def card(
    saes: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Folders, each of one SAE or of many."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for README.md and its pictures.")] = Path(
        "card"
    ),
    repo_id: Annotated[
        str | None,
        typer.Option(
            help="Repository on the Hub.", show_default="the release's, as training recorded it"
        ),
    ] = None,
    release: ReleaseOption = None,
    evaluation: EvaluationOption = None,
    license: LicenseOption = None,
    base_model: BaseModelOption = None,
) -> None:
    """Render the card that `upload` would publish, without a network."""
    with error_boundary("Interrupted."):
        console = console_while_loading()
        from sae_lens_c2r import hub
        from sae_lens_c2r.releases.files import find_release, read_release

        submission = hub.Submission(
            saes,
            release=read_release(find_release(release)) if release else None,
            evaluation=evaluation,
            license=license,
            base_model=base_model,
        )
        path = hub.write_card(submission, out, repo_id=repo_id, tell=partial(say, console))
        say(console, f"Card: {path}")
