"""The commands that publish SAEs, each one call of the library.

Heavy modules are imported by the command that needs them: `--help` answers at once.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from sae_lens_c2r.errors import UserError
from sae_lens_c2r.release import Release, ReleaseError
from sae_lens_c2r.terminal import fail

if TYPE_CHECKING:
    from sae_lens_c2r.hub.proposal import Proposal

registry_app = typer.Typer(help="The releases that come with this package.")

ReleaseArgument = Annotated[
    str, typer.Argument(help="A release of ours, such as minilm-layer-3, or a YAML file.")
]


@registry_app.command("list")
def list_releases() -> None:
    """List the releases."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from sae_lens_c2r.registry import shipped_releases

    table = Table("release", "SAEs", "status", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("repository", overflow="fold")
    for release in shipped_releases():
        table.add_row(release.name, str(len(release.saes())), release.status, release.repo_id)
    Console().print(table)


@registry_app.command("show")
def show_release(release: ReleaseArgument) -> None:
    """Print what a release trains."""
    from sae_lens_c2r.registry import find_release, read_release
    from sae_lens_c2r.release import ReleaseError

    try:
        path = find_release(release)
        saes = read_release(path).saes()
    except ReleaseError as error:
        fail(str(error))
    print(path.read_text(encoding="utf-8"), "\n# its SAEs", sep="")
    print(*(f"# {spec.sae_id}" for spec in saes), sep="\n")


@registry_app.command("export")
def export_release(release: ReleaseArgument) -> None:
    """Print the release's entry for SAELens's directory, pretrained_saes.yaml."""
    import yaml

    from sae_lens_c2r.registry import directory_entry, find_release, read_release
    from sae_lens_c2r.release import ReleaseError

    try:
        entry = directory_entry(read_release(find_release(release)))
    except ReleaseError as error:
        fail(str(error))
    print(yaml.safe_dump(entry, sort_keys=False), end="")


SAEsArgument = Annotated[
    list[Path],
    typer.Argument(metavar="DIR...", help="Folders, each of one SAE or of many."),
]
ReleaseOption = Annotated[
    str | None,
    typer.Option(
        "--release", help="The release of the SAEs.", show_default="what training recorded"
    ),
]
EvaluationOption = Annotated[
    Path | None,
    typer.Option(
        help="What `evaluate` has measured.",
        show_default="evaluation/evaluation.json, here or beside the folders",
    ),
]
LicenseOption = Annotated[
    str | None,
    typer.Option(help="Licence of the weights, like mit.", show_default="the release's"),
]


def upload(
    saes: SAEsArgument,
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
    console = Console()
    console.print("Loading SAELens ...")
    from sae_lens_c2r.hub.proposal import Target
    from sae_lens_c2r.hub.upload import upload as upload_all
    from sae_lens_c2r.training.stopping import stop_requests

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

    try:
        target = Target(repo_id, revision, tag=tag, create_pr=create_pr, public=public)
        with stop_requests():
            published = upload_all(
                saes,
                target,
                agree=agree,
                release=_read(release),
                evaluation=evaluation,
                license=license,
                check_published=not no_verify,
                tell=lambda line: console.print(line, markup=False, soft_wrap=True),
            )
    except (UserError, ReleaseError) as error:
        fail(str(error))
    except KeyboardInterrupt as interrupted:
        fail(str(interrupted) or "Interrupted. Nothing was sent.", code=130)
    if published is not None and published.url is not None:
        console.print(f"Published: {published.url}", markup=False, soft_wrap=True)


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
        typer.Option(help="Repository on the Hub.", show_default="the release's"),
    ] = None,
    release: ReleaseOption = None,
    evaluation: EvaluationOption = None,
    license: LicenseOption = None,
) -> None:
    """Render the card that `upload` would publish, without a network."""
    console = Console()
    console.print("Loading SAELens ...")
    from sae_lens_c2r.hub.local_card import planned_card, write_card
    from sae_lens_c2r.registry import find_release, read_release

    try:
        if len(saes) == 1 and not Path(saes[0]).is_dir():
            path = planned_card(read_release(find_release(saes[0])), out)
        else:
            path = write_card(
                list(map(Path, saes)),
                out,
                repo_id=repo_id,
                release=_read(release),
                evaluation=evaluation,
                license=license,
                tell=lambda line: console.print(line, markup=False, soft_wrap=True),
            )
    except (UserError, ReleaseError, OSError) as error:
        fail(str(error))
    console.print(f"Card: {path}", markup=False, soft_wrap=True)


def add_to(app: typer.Typer) -> None:
    """Give an app these commands.

    Args:
        app: The app.
    """
    app.command()(upload)
    app.command()(card)
    app.add_typer(registry_app, name="registry")


def _read(release: str | None) -> Release | None:
    from sae_lens_c2r.registry import find_release, read_release

    return read_release(find_release(release)) if release else None


def _show(proposal: "Proposal", console: Console, *, public: bool) -> None:
    """What would be sent, what was left out, and what would change in the card."""
    from rich.box import SIMPLE_HEAD
    from rich.syntax import Syntax
    from rich.table import Table

    from sae_lens_c2r.hub.tables import printable

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
    table = Table("file", "", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("bytes", justify="right")
    table.add_column("SHA-256")
    for file in plan.files:
        is_replaced = file.path_in_repo in plan.replaced
        what = "replaced" if is_replaced else "new"
        table.add_row(file.path_in_repo, what, f"{file.size:,}", file.sha256[:16])
    console.print(table)
    console.print(f"{plan.size / 1e6:,.1f} MB; {plan.unchanged} files are there already.")
    for sae_id, keys in proposal.removed.items():
        left_out = ", ".join(map(repr, keys))
        console.print(f"Left out of {sae_id}/cfg.json: {left_out}", markup=False)
    if proposal.card_diff:
        diff = printable(proposal.card_diff)
        console.print(Syntax(diff, "diff", background_color="default", word_wrap=True))
