"""How a command ends that cannot do what it should: the one place that catches errors."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from sae_lens_c2r._support.errors import UserError


@contextmanager
def error_boundary(
    interrupted: str, *, how_to_go_on: Callable[[], str] = str
) -> Iterator[list[str]]:
    """Print what keeps a command from doing what it should, and end it with a status.

    Args:
        interrupted: What to say where the command is interrupted by a signal, unless the
            interruption says itself what is there and what is not.
        how_to_go_on: What to add where something from outside ended the command: a signal, or
            a disk that is full.

    Yields:
        A list for what goes wrong with single SAEs while the others go on. It is printed at
        the end, a line each, and the status is 1 if there is any.

    Raises:
        Exit: With 1 after an error, with 130 after an interruption.
    """
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
