"""The command `sae-lens-c2r`. Each of its commands is one call of the library.

Heavy modules are imported by the command that needs them: `--help` answers at once.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sae_lens_c2r import __version__, hub_cli
from sae_lens_c2r.terminal import fail

app = typer.Typer(
    help="C2R (Cross-sample Consistency Regularization) for SAELens.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
hub_cli.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"sae-lens-c2r {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the SAEs, the numbers and the report.")
    ] = Path("demo-output"),
    tokens: Annotated[int, typer.Option(help="Tokens of training.")] = 400_000,
    d_sae: Annotated[int, typer.Option(help="Latents of each SAE.")] = 4096,
    k: Annotated[int, typer.Option(help="Latents active per token, on average.")] = 32,
    c2r_coefficient: Annotated[float, typer.Option(help="Strength of the C2R penalty.")] = 5.0,
    seed: Annotated[int, typer.Option(help="Seed of the weights and of the data.")] = 0,
    device: Annotated[
        str | None, typer.Option(help="Torch device.", show_default="cuda if there is one")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the files of an earlier demo in --out.")
    ] = False,
) -> None:
    """Train BatchTopK with and without C2R on a real transformer, offline, and compare them."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    console = Console()
    console.print("Loading SAELens ...")
    import torch

    from sae_lens_c2r.demo.settings import DemoError, DemoSettings

    try:
        settings = DemoSettings(
            out=out,
            tokens=tokens,
            d_sae=d_sae,
            k=k,
            c2r_coefficient=c2r_coefficient,
            seed=seed,
            device=device or ("cuda" if torch.cuda.is_available() else "cpu"),
            overwrite=overwrite,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    try:
        settings.check_out()
        from sae_lens_c2r.demo.run import run_demo

        run_demo(settings, console)
    except DemoError as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("Interrupted; nothing was written.", code=130)


@app.command()
def train(
    release: Annotated[
        str, typer.Argument(help="A release of ours, such as minilm-layer-3, or a YAML file.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the folders of the SAEs.")] = Path(
        "saes"
    ),
    only: Annotated[
        list[str] | None, typer.Option(help="Id of an SAE to train; may be repeated.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A value in place of the file's, sae.k=50; may be repeated."
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Torch device.", show_default="cuda if there is one")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint, if any.")
    ] = False,
    checkpoint_minutes: Annotated[
        float, typer.Option(min=0, help="Minutes between checkpoints; 0 for none.")
    ] = 30.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")
    ] = False,
) -> None:
    """Train the SAEs of a release, except those that are in the folder already."""
    from sae_lens_c2r.registry import find_release, parse_changes, read_release
    from sae_lens_c2r.release import ReleaseError

    console = Console()
    try:
        read = read_release(find_release(release), changes=parse_changes(changes or []))
        console.print("Loading SAELens ...")
        import torch

        from sae_lens_c2r.training.plan import make_plan
        from sae_lens_c2r.training.run import train as train_plan
        from sae_lens_c2r.training.summary import print_plan

        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        plan = make_plan(read, device=device, only=tuple(only or ()))
        print_plan(plan, console)
        if dry_run:
            return
        folders = train_plan(
            plan,
            out,
            resume=resume,
            checkpoint_minutes=checkpoint_minutes,
            tell=lambda line: console.print(line, markup=False),
        )
    except ReleaseError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error}{_how_to_go_on(out)}")
    except KeyboardInterrupt:
        fail(f"Interrupted.{_how_to_go_on(out)}", code=130)
    console.print(f"{len(folders)} SAEs trained, in {out}.", markup=False)


def _how_to_go_on(out: Path) -> str:
    if not any((out / ".training").glob("step-*")):
        return ""
    return " `--resume` continues from the last checkpoint."


@app.command()
def inspect(
    saes: Annotated[
        list[str],
        typer.Argument(
            metavar="SAE...",
            help="A folder of one SAE or of many, or a release followed by an SAE's id.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The report.")] = Path("report.html"),
    figure: Annotated[
        Path | None, typer.Option(help="The picture alone, as SVG.", show_default="none")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            help="Text to run the SAEs' model on: a file, a dataset on the Hub, or "
            "python-documentation, which comes with all-MiniLM-L6-v2.",
            show_default="the weights alone are looked at",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model.", show_default="what the SAE's config names")
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of the text, at most.")] = 100_000,
    device: Annotated[
        str | None, typer.Option(help="Torch device.", show_default="cuda if there is one")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the files of an earlier report.")
    ] = False,
) -> None:
    """Measure any SAELens SAEs, and write a report to look at."""
    console = Console()
    console.print("Loading SAELens ...")
    import torch

    from sae_lens_c2r.errors import UserError
    from sae_lens_c2r.inspection.report import picture, report_html, terminal_tables
    from sae_lens_c2r.inspection.run import check_free
    from sae_lens_c2r.inspection.run import inspect as inspect_all
    from sae_lens_c2r.inspection.text import reader_of
    from sae_lens_c2r.sources import find_sources

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    failed: list[str] = []
    try:
        for path in (out, figure):
            if path is not None:
                check_free(path, overwrite=overwrite)
        sources = find_sources(saes, on_error=failed.append)
        reader = text and reader_of(text, model=model, n_tokens=tokens, device=device)
        found = inspect_all(
            sources,
            device=device,
            on_error=failed.append,
            reader=reader or None,
            tell=lambda line: console.print(line, markup=False),
        )
        if found:
            console.print(*terminal_tables(found), sep="\n")
            out.write_text(report_html(found), encoding="utf-8")
            console.print(f"Report: {out}", markup=False)
        if found and figure is not None:
            figure.write_text(picture(found) + "\n", encoding="utf-8")
    except (UserError, OSError) as error:
        fail(str(error))
    if failed:
        fail("\n".join(failed))


@app.command()
def evaluate(
    saes: Annotated[
        list[str],
        typer.Argument(
            metavar="SAE...",
            help="A folder of one SAE or of many, or a release followed by an SAE's id.",
        ),
    ],
    sae_bench: Annotated[
        list[str] | None,
        typer.Option(
            help="SAEBench's evaluations: core absorption scr tpp sparse_probing "
            "sparse_probing_sae_probes ravel autointerp meta_structure."
        ),
    ] = None,
    sae_lens: Annotated[bool, typer.Option(help="Run SAELens's own evaluation too.")] = True,
    model: Annotated[
        str | None,
        typer.Option(help="The language model.", show_default="what the SAE's config names"),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            help="What SAELens's evaluation reads: a file, a dataset on the Hub, or "
            "python-documentation.",
            show_default="what the SAE was trained on",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with SAEBench's datasets by their names on the Hub, for machines "
            "without network.",
            show_default="they are downloaded",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting, core.batch_size_prompts=4; may be repeated."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("evaluation"),
    jobs: Annotated[int, typer.Option(min=1, help="Evaluations at a time.")] = 1,
    hours: Annotated[float, typer.Option(min=0, help="How long one may take.")] = 24,
    device: Annotated[
        str | None, typer.Option(help="Torch device.", show_default="cuda if there is one")
    ] = None,
) -> None:
    """Run SAEBench's and SAELens's evaluations of any SAEs; those in --out are kept."""
    from sae_lens_c2r.errors import UserError

    console = Console()
    console.print("Loading SAELens ...")
    import torch

    from sae_lens_c2r.evaluation.plan import Options
    from sae_lens_c2r.evaluation.results import GATHERED
    from sae_lens_c2r.evaluation.run import evaluate as evaluate_all
    from sae_lens_c2r.evaluation.settings import parse_settings
    from sae_lens_c2r.evaluation.table import terminal_table
    from sae_lens_c2r.sources import find_sources
    from sae_lens_c2r.training.stopping import stop_requests

    failed: list[str] = []
    try:
        options = Options(
            out=out,
            sae_bench=list(dict.fromkeys(sae_bench or [])),
            sae_lens=sae_lens,
            model=model,
            text=text,
            data=data,
            changes=parse_settings(changes or []),
            device=device or ("cuda" if torch.cuda.is_available() else "cpu"),
            at_once=jobs,
            hours=hours,
        )
        with stop_requests():
            gathered = evaluate_all(
                find_sources(saes, on_error=failed.append),
                options,
                on_error=failed.append,
                tell=lambda line: console.print(line, markup=False),
            )
    except (UserError, OSError) as error:
        fail("\n".join([*failed, str(error)]))
    except KeyboardInterrupt:
        reason = "Interrupted. The same command goes on with what is missing."
        fail("\n".join([*failed, reason]), code=130)
    console.print(terminal_table(gathered))
    console.print(f"Everything that was measured: {out / GATHERED}", markup=False)
    if failed:
        fail("\n".join(failed))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command.

    Args:
        arguments: What would follow `sae-lens-c2r`; `None` reads the command line.
    """
    app(_repeat_option(sys.argv[1:] if arguments is None else arguments, "--sae-bench"))


def _repeat_option(arguments: Sequence[str], option: str) -> list[str]:
    """Give each of the values that follow an option, up to a folder, the option of its own."""
    spread: list[str] = []
    follows = False
    for argument in arguments:
        if argument.startswith("-"):
            follows = argument == option or argument.startswith(f"{option}=")
            spread.append(argument)
        elif follows and not Path(argument).is_dir():
            spread += [argument] if spread[-1] == option else [option, argument]
        else:
            follows = False
            spread.append(argument)
    return spread
