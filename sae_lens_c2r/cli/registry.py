"""`sae-lens-c2r registry`: the releases that come with this package."""

import typer
from rich.console import Console

from sae_lens_c2r.cli._errors import error_boundary
from sae_lens_c2r.cli._options import ReleaseArgument

registry = typer.Typer(help="The releases that come with this package.")


@registry.command("list")
def list_releases() -> None:
    """List the releases."""
    with error_boundary("Interrupted."):
        from sae_lens_c2r.releases.files import shipped_releases
        from sae_lens_c2r.reporting.tables import fitting_tables

        headings = ["release", "SAEs", "status", "repository"]
        rows = [
            [release.name, str(len(release.saes())), release.status, release.repo_id]
            for release in shipped_releases()
        ]
        console = Console()
        tables = fitting_tables(headings, rows, width=console.width, text=(0, 2, 3))
        console.print(*tables, sep="\n")


@registry.command("show")
def show_release(release: ReleaseArgument) -> None:
    """Print what a release trains."""
    with error_boundary("Interrupted."):
        from sae_lens_c2r.releases.files import find_release, read_release

        path = find_release(release)
        saes = read_release(path).saes()
        print(path.read_text(encoding="utf-8"), "\n# its SAEs", sep="")
        print(*(f"# {spec.sae_id}" for spec in saes), sep="\n")


@registry.command("export")
def export_release(release: ReleaseArgument) -> None:
    """Print the release's entry for SAELens's directory, pretrained_saes.yaml."""
    with error_boundary("Interrupted."):
        import yaml

        from sae_lens_c2r.releases.files import directory_entry, find_release, read_release

        entry = directory_entry(read_release(find_release(release)))
        print(yaml.safe_dump(entry, sort_keys=False), end="")
