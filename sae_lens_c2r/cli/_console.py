"""How commands print, and how they end: the one place that catches errors."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from sae_lens_c2r._support.errors import UserError


class LineConsole(Console):
    """A console that also prints lines with paths and names in them."""

    def say(self, line: str) -> None:
        """Print a line that is neither read as markup nor wrapped."""
        self.print(line, markup=False, soft_wrap=True)


def console_while_loading(*, quiet: bool = False) -> LineConsole:
    """A console that has said what takes the first seconds: importing SAELens."""
    console = LineConsole(quiet=quiet)
    console.print("Loading SAELens ...")
    return console


@contextmanager
def error_boundary(
    interrupted: str, *, how_to_go_on: Callable[[], str] = str
) -> Iterator[list[str]]:
    """Print what keeps a command from doing what it should, and end it with a status."""
    problems: list[str] = []
    status = 1
    try:
        yield problems
    except UserError as error:
        problems.append(str(error))
    except OSError as error:
        problems.append(f"{error}{how_to_go_on()}")
    except KeyboardInterrupt as interruption:
        problems.append(f"{str(interruption) or interrupted}{how_to_go_on()}")
        status = 130
    if problems:
        print("\n".join(problems), file=sys.stderr)
        raise typer.Exit(status)
