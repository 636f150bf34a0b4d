"""How a command ends that cannot do what it should: the one place that catches errors."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from sae_lens_c2r._support.errors import UserError


@contextmanager
def error_boundary(interrupted: str) -> Iterator[list[str]]:
    """Print what keeps a command from doing what it should, and end it with a status.

    Args:
        interrupted: What to say where the command is interrupted by a signal, unless the
            interruption says itself what is there and what is not.

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
    except (UserError, OSError) as error:
        problems.append(str(error))
    except KeyboardInterrupt as interruption:
        problems.append(str(interruption) or interrupted)
        status = 130
    if problems:
        print("\n".join(problems), file=sys.stderr)
        raise typer.Exit(status)
