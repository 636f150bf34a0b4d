"""Options, output and the handling of errors, which commands share."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.libraries import no_false_alarms
from sae_lens_c2r._support.remote_code import TRUSTED

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_NUMBER = re.compile(
    r"((?:\d+|\d{1,3}(?:,\d{3})+|\d{1,3}(?:_\d{3})+)(?:\.\d+)?(?:e\+?\d\d?)?)([kmb]?)",
    re.IGNORECASE,
)
_TYPED: dict[str, str] = {}  # options of the command that runs, by the library's names
_WHOLE_LINES = 10_000  # columns of a pipe, in which nothing should be wrapped


def option(default: Any, help: str, *names: str, unset: str | bool = True, **more: Any) -> Any:
    """Describe an option; help shows `unset`, if given, in place of its default."""
    return typer.Option(default, *names, help=help, show_default=unset, **more)


def count_option(default: Any, help: str, *, least: int = 1) -> Any:
    """Describe an option whose value is a number like 5M, 400k or 20_000."""

    def count_of(text: object) -> int:
        number, count = _NUMBER.fullmatch(str(text).strip()), 0
        if number:
            digits = number[1].replace("_", "").replace(",", "")
            exact = Decimal(digits) * _UNITS[number[2].lower()]
            count = int(exact) if exact == int(exact) else 0
        if count < least:
            raise typer.BadParameter(
                f"It should be whole, like 5M or 400k, and at least {least:,}. Found {text}."
            )
        return count

    return option(default, help, parser=count_of, metavar="COUNT")


def _releases() -> list[str]:
    """Name the shipped releases, which a shell completes."""
    from sae_lens_c2r.releases.files import REGISTRY

    return [path.stem for path in REGISTRY.glob("*.yaml")]


DEVICE = option(None, "Torch device.", unset="cuda if available")
OVERWRITE = option(False, "Replace what an earlier run has written.", "--overwrite")
MODEL = option(None, "The language model.", unset="what the SAE's config names")
SAES = typer.Argument(
    ...,
    metavar="SAE...",
    help="A folder with one or more SAEs, or a release followed by an SAE's id.",
)


SPLIT = option(None, "Split of the text.", unset="train, or the only one")
SUBSET = option(None, "Subset of the text, as on the Hub.", unset="the only one")
COLUMN = option(
    None, "Column of the text.", unset="tokens, input_ids, text, problem, or the only one"
)
RELEASE = typer.Argument(
    ...,
    help="A release of this package, such as minilm-layer-3, or a YAML file.",
    autocompletion=_releases,
)
SET = option(None, "A value to change, like sae.k=50; may be repeated.", "--set")
RESUME = option(False, "Continue from the last checkpoint, if any.", "--resume")
OTHER_TEXT = option(False, "Resume though the text has changed.", "--other-text")
CHECKPOINT_MINUTES = option(30.0, "Minutes between checkpoints; 0 for only the last.", min=0)
JSON = option(False, "Print numbers as JSON, in place of tables.", "--json")
TRUST = option(False, "Run code that comes with models and datasets.", "--trust-remote-code")
DRY_RUN = option(False, "Print what would be done, and do nothing.", "--dry-run")


def usable_device(device: str | None) -> str:
    """The given device, or else `cuda` if available; a UserError if torch lacks it."""
    import torch

    name, problem = device or ("cuda" if torch.cuda.is_available() else "cpu"), ""
    try:  # torch has a kind of error for each: unknown, not built in, no kernels
        if torch.empty(0, device=name).device.type != "meta":
            return name
    except (RuntimeError, AssertionError, ImportError) as error:
        problem = f": {str(error).splitlines()[0].rstrip('.')}"
    should = "be a device that torch has here, such as cpu or cuda"
    raise UserError("device", should, f"{name!r}{problem}")


def name_as_options(keys: Iterable[str]) -> None:
    """Have errors name keys of a release as the options that gave their values."""
    _TYPED.update({key: _TYPED[name] for key in keys if (name := key.split(".")[1]) in _TYPED})


class _FlagsWithoutType:
    """Help that shows no `<bool>` beside a flag."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters; flags have no type to show."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return params


class Command(_FlagsWithoutType, TyperCommand):
    """A command with such help, whose errors name its options as they are typed."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        typed = {param.name: max(param.opts, key=len) for param in self.params}
        _TYPED.update({name: opt for name, opt in typed.items() if opt.startswith("--")})
        try:
            for name, value in ctx.params.items():  # a shell leaves the `~` of `--out=~/saes`
                if isinstance(value, str | Path):
                    ctx.params[name] = type(value)(os.path.expanduser(value))
            return super().invoke(ctx)
        finally:
            _TYPED.clear()


class Group(_FlagsWithoutType, TyperGroup):
    """A command that has commands, with such help."""


class LineConsole(Console):
    """A console for results, which tells of progress on the standard error."""

    no_progress = False  # as `--quiet` asks

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
    """Print the errors of a command, and end the command with their status."""
    problems: list[UserError] = []
    status = 1
    try:
        with no_false_alarms():
            yield problems
    except BrokenPipeError:
        raise  # which click ends quietly: whoever read the output has enough of it
    except UserError as error:
        problems.append(error)
    except OSError as error:
        problems.append(UserError(f"{error}{how_to_go_on()}"))
    except KeyboardInterrupt as interruption:
        problems.append(UserError(f"{str(interruption) or interrupted}{how_to_go_on()}"))
        status = getattr(interruption, "status", 130)
    finally:
        TRUSTED.set(False)
    options = [_option_of(problem.field) for problem in problems]
    for problem, option in zip(problems, options, strict=True):
        print(problem.told(option), file=sys.stderr)
    if problems:
        is_of_usage = status == 1 and options[0] and not problems[0].of
        raise typer.Exit(2 if is_of_usage else status)


def _option_of(field: str | Path) -> str | None:
    """The option that a parameter of the library was typed as, if any."""
    if isinstance(field, Path):
        return None
    return field if field.startswith("--") else _TYPED.get(field)
