"""How a command ends that cannot do what it should."""

import sys
from typing import NoReturn

import typer


def fail(reason: str, *, code: int = 1) -> NoReturn:
    """End a command.

    Args:
        reason: What to print.
        code: The process's exit status.

    Raises:
        Exit: Always.
    """
    print(reason, file=sys.stderr)
    raise typer.Exit(code)
