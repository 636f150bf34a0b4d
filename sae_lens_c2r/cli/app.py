"""The command `sae-lens-c2r`. Each of its commands is one call of the library.

Heavy modules are imported by the command that needs them: `--help` answers at once.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

import typer

from sae_lens_c2r import __version__
from sae_lens_c2r.cli._shared import Command, Group, LineConsole, option
from sae_lens_c2r.cli.demo import demo
from sae_lens_c2r.cli.evaluate import evaluate
from sae_lens_c2r.cli.inspect import inspect
from sae_lens_c2r.cli.publish import card, upload
from sae_lens_c2r.cli.registry import registry
from sae_lens_c2r.cli.train import finetune, train

app = typer.Typer(
    cls=Group,
    help="C2R (Cross-sample Consistency Regularization) for SAELens.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, train, finetune, inspect, evaluate, card, upload):
    app.command(cls=Command)(command)
app.add_typer(registry, name="registry")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"sae-lens-c2r {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: bool = option(
        False, "Print the version.", "--version", callback=_print_version, is_eager=True
    ),
    quiet: bool = option(False, "Print only results and errors.", "--quiet"),
) -> None:
    LineConsole.no_progress = quiet
    if quiet:  # for SAELens, datasets and the Hub's client, which are imported later
        os.environ |= {"TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            with suppress(OSError):  # where another file was put in its place
                stream.reconfigure(errors="replace")  # a latin-1 terminal has no lambda
    spread = _repeat_option(sys.argv[1:] if arguments is None else arguments, "--sae-bench")
    spread.sort(key=lambda argument: argument != "--quiet")  # wherever it was typed
    app(spread, prog_name="sae-lens-c2r")  # of `python -m sae_lens_c2r` too


def _repeat_option(arguments: Sequence[str], option: str) -> list[str]:
    """Repeat an option before each value that follows it, up to a folder."""
    spread: list[str] = []
    follows = False
    for argument in arguments:
        if argument.startswith("-"):
            follows = argument.partition("=")[0] == option
        elif spread[-1:] != [option] and Path(argument).is_dir():
            follows = False
        elif follows and spread[-1] != option:
            spread.append(option)
        spread.append(argument)
    return spread
