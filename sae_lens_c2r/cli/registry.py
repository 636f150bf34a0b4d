"""`sae-lens-c2r registry`: the releases that come with this package, and new ones."""

import shlex
from pathlib import Path

import typer

from sae_lens_c2r.cli import _shared as shared
from sae_lens_c2r.cli._shared import LineConsole, console_while_loading, error_boundary, option

_TOKENS = 5_000_000  # of a new release that trains an SAE further

registry = typer.Typer(help="The releases that come with this package, and new ones.")


@registry.command("list", cls=shared.Command)
def list_releases() -> None:
    """List the releases."""
    with error_boundary():
        from sae_lens_c2r.releases.files import shipped_releases
        from sae_lens_c2r.reporting.tables import terminal_tables

        headings = ["release", "SAEs", "status", "repository"]
        rows = [
            [release.name, str(len(release.saes())), release.status, release.repo_id or ""]
            for release in shipped_releases()
        ]
        console = LineConsole()
        console.print(*terminal_tables(headings, rows, width=console.width, text=(0, 2, 3)))


@registry.command("export", cls=shared.Command)
def export_release(release: str = shared.RELEASE) -> None:
    """Print the release's entry for SAELens's directory, pretrained_saes.yaml."""
    with error_boundary():
        import yaml

        from sae_lens_c2r.releases.files import directory_entry, find_release, read_release

        entry = directory_entry(read_release(find_release(release)))
        print(yaml.safe_dump(entry, sort_keys=False), end="")


@registry.command("new", cls=shared.Command)
def new_release(
    name: str = typer.Argument(..., metavar="NAME", help="Name of the release, like my-saes."),
    model: str | None = option(
        None,
        "A model that TransformerLens has, like gpt2 or google/gemma-2-2b.",
        unset="SmolLM2-135M-Instruct, which trains offline",
    ),
    from_sae: str | None = option(
        None,
        "An SAE to train further: a folder, or a release and an SAE's id with a space between.",
        "--from",
    ),
    out: Path = option(Path(), "Folder for the file.", unset="the current one"),
    overwrite: bool = shared.OVERWRITE,
) -> None:
    """Write NAME.yaml, a small release to start from, with comments on what to change."""
    with error_boundary():
        from sae_lens_c2r._support.errors import UserError
        from sae_lens_c2r._support.files import write_text
        from sae_lens_c2r.releases.files import new_release

        name = name.removesuffix(".yaml")
        path = out / f"{name}.yaml"
        if path.exists() and not overwrite:
            raise UserError("NAME", "name a new file, unless `--overwrite` is given", path)
        if model is not None or from_sae is not None:
            console_while_loading()
        if from_sae is None:
            text = new_release(name, model)
        else:
            from sae_lens_c2r.releases.from_sae import release_from
            from sae_lens_c2r.saes.sae_ref import find_sae

            place = [from_sae] if Path(from_sae).is_dir() else from_sae.split(maxsplit=1)
            _, text = release_from(find_sae(place), name, tokens=_TOKENS, changes={})
        out.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
        command = f"sae-lens-c2r train {shlex.quote(str(path))} --dry-run"
        print(f"Wrote {path}. `{command}` shows what training takes.")
