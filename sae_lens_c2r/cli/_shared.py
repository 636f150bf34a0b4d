"""Options, output and the handling of errors, which commands share."""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperCommand

from sae_lens_c2r._support.errors import UserError, error_of
from sae_lens_c2r._support.libraries import silence_false_alarms
from sae_lens_c2r._support.remote_code import TRUSTED

_RUNNING: ContextVar[Any] = ContextVar("_RUNNING", default=None)  # the command's context
_WHOLE_LINES = 10_000  # columns of a pipe, in which nothing should be wrapped


def option(default: Any, help: str, *names: str, unset: str | bool = True, **more: Any) -> Any:
    """Describe an option; help shows `unset`, if given, in place of its default."""
    return typer.Option(default, *names, help=help, show_default=unset, **more)


DEVICE = option(None, "Torch device.", unset="cuda if available")
OVERWRITE = option(False, "Replace what an earlier run has written.", "--overwrite")
MODEL = option(None, "The language model.", unset="what the SAE's config names")
SAES = typer.Argument(
    ...,
    metavar="SAE...",
    help="A folder with one or more SAEs, or a release followed by an SAE's id.",
)
SAE = typer.Argument(..., metavar="SAE", help="A folder, or a release followed by an SAE's id.")
SPLIT = option(None, "Split of the text.", unset="train, or the only one")
SUBSET = option(None, "Subset of the text, as on the Hub.", unset="the only one")
COLUMN = option(
    None, "Column of the text.", unset="tokens, input_ids, text, problem, or the only one"
)
RELEASE = typer.Argument(
    ..., help="A release of this package, such as minilm-layer-3, or a YAML file."
)
SET = option(None, "A value to change, like sae.k=50; may be repeated.", "--set")
RESUME = option(False, "Continue from the last checkpoint, if any.", "--resume")
CHECKPOINT_MINUTES = option(30.0, "Minutes between checkpoints; 0 for only the last.", min=0)
JSON = option(False, "Print numbers as JSON, in place of tables.", "--json")
TRUST = option(False, "Run code that comes with models and datasets.", "--trust-remote-code")
DRY_RUN = option(False, "Print what would be done, and do nothing.", "--dry-run")


def device_or_usual(device: str | None) -> str:
    """The given device, or else `cuda` if available."""
    import torch

    return device or ("cuda" if torch.cuda.is_available() else "cpu")


class Command(TyperCommand):
    """A command whose name and options errors have."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        for name, value in ctx.params.items():  # a shell leaves the `~` of `--out=~/saes`
            if isinstance(value, str | Path):
                ctx.params[name] = type(value)(os.path.expanduser(value))
        running = _RUNNING.set(ctx)
        try:
            return super().invoke(ctx)
        finally:
            _RUNNING.reset(running)


class LineConsole(Console):
    """A console for results, which tells of progress on the standard error."""

    no_progress = False  # as `--quiet` asks
    debug = False  # whether errors have their tracebacks

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if not self.is_terminal and "COLUMNS" not in os.environ:
            self.width = _WHOLE_LINES

    def say(self, line: str) -> None:
        """Print a line of progress, or a warning."""
        if not (self.quiet or self.no_progress):
            from tqdm import tqdm

            tqdm.write(line, file=sys.stderr)  # above a bar that is shown


def console_while_loading(*, quiet: bool = False) -> LineConsole:
    """A console that has said what takes the first seconds: importing SAELens."""
    console = LineConsole(quiet=quiet)
    console.say("Loading SAELens ...")
    return console


@contextmanager
def error_boundary(
    interrupted: str = "Interrupted.", *, how_to_go_on: Callable[[], str] = str
) -> Iterator[list[UserError]]:
    """Print the errors of a command, each in a line, and end the command with their status."""
    problems: list[UserError] = []
    status = 1
    silence_false_alarms()
    try:
        yield problems
    except (BrokenPipeError, typer.Abort):
        raise  # whoever read the output has enough of it, or has answered no
    except Exception as error:  # of any library
        problem = error if isinstance(error, UserError) else error_of(_command(), error)
        problem.more = f"{problem.more}{how_to_go_on()}".strip()
        problems.append(problem)
    except KeyboardInterrupt as interruption:
        problems.append(UserError(f"{str(interruption) or interrupted}{how_to_go_on()}"))
        status = getattr(interruption, "status", 130)
    finally:
        TRUSTED.set(False)
    options = [_option_of(problem.field) for problem in problems]
    for problem, option in zip(problems, options, strict=True):
        if LineConsole.debug:
            traceback.print_exception(problem)
        print(problem.told(option), file=sys.stderr)
    if problems:
        is_of_usage = status == 1 and options[0] and not problems[0].of
        raise typer.Exit(2 if is_of_usage else status)


def _command() -> str:
    """The command that runs, as it was typed."""
    context = _RUNNING.get()
    return context.command_path.partition(" ")[2] if context else "sae-lens-c2r"


def _option_of(field: str | Path) -> str | None:
    """The option of the command that runs by which a field is given, if any."""
    if isinstance(field, Path) or field.startswith("--"):
        return None if isinstance(field, Path) else field
    context, option = _RUNNING.get(), f"--{field.replace('_', '-')}"
    params = context.command.params if context else []
    return option if any(option in param.opts for param in params) else None
