"""The command `sae-lens-c2r`. Each of its commands is one call of the library.

Heavy modules are imported by the command that needs them: `--help` answers at once.
"""

import os
import sys
from collections.abc import Sequence

import typer

from sae_lens_c2r._support.libraries import versions
from sae_lens_c2r.cli._shared import Command, LineConsole, option
from sae_lens_c2r.cli.demo import demo
from sae_lens_c2r.cli.evaluate import evaluate
from sae_lens_c2r.cli.finetune import finetune
from sae_lens_c2r.cli.inspect import inspect
from sae_lens_c2r.cli.publish import card, upload
from sae_lens_c2r.cli.registry import registry
from sae_lens_c2r.cli.train import train

app = typer.Typer(
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
        print(*(f"{name} {number}" for name, number in versions().items()), sep="\n")
        raise typer.Exit


@app.callback()
def _options(
    _version: bool = option(
        False, "Print the version.", "--version", callback=_print_version, is_eager=True
    ),
    quiet: bool = option(False, "Print only results and errors.", "--quiet"),
    debug: bool = option(False, "Print the traceback of an error.", "--debug"),
) -> None:
    LineConsole.no_progress, LineConsole.debug = quiet, debug
    if quiet:  # for SAELens, datasets and the Hub's client, which are imported later
        os.environ |= {"TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    typed = sys.argv[1:] if arguments is None else arguments
    # These two first, wherever they were typed.
    ordered = sorted(typed, key=lambda argument: argument not in ("--quiet", "--debug"))
    app(ordered, prog_name="sae-lens-c2r")  # of `python -m sae_lens_c2r` too
