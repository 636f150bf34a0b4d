"""`sae-lens-c2r card`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sae_lens_c2r.cli._console import console_while_loading, say
from sae_lens_c2r.cli._errors import error_boundary
from sae_lens_c2r.cli._options import (
    BaseModelOption,
    EvaluationOption,
    LicenseOption,
    ReleaseOption,
)


def card(
    saes: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR...|RELEASE",
            help="Folders, each of one SAE or of many; or a release that is planned.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for README.md and its pictures; of a release, a .md file too."
        ),
    ] = Path("card"),
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
        from sae_lens_c2r.hub.folder import planned_card, write_card
        from sae_lens_c2r.hub.submission import Submission
        from sae_lens_c2r.releases.files import find_release, read_release

        if len(saes) == 1 and not Path(saes[0]).is_dir():
            path = planned_card(read_release(find_release(saes[0])), out)
        else:
            named = read_release(find_release(release)) if release else None
            folders = list(map(Path, saes))
            submission = Submission(folders, named, evaluation, license, base_model)
            path = write_card(submission, out, repo_id=repo_id, tell=partial(say, console))
        say(console, f"Card: {path}")
