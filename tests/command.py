"""The command `sae-lens-c2r`, as somebody runs it."""

import os
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from unittest.mock import patch

import pytest

from sae_lens_c2r.cli import main
from tests.forkserver import Completed


def run(*arguments: object) -> int:
    """The status with which it ends."""
    with pytest.raises(SystemExit) as left, patch.dict(os.environ):
        main([*map(str, arguments)])
    return int(left.value.code or 0)


def run_command(*arguments: object) -> Completed:
    """The status with which it ends, and what it has printed."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as errors:
        status = run(*arguments)
    return Completed([*map(str, arguments)], status, out.getvalue(), errors.getvalue())
