"""Processes with all imports done: they are forked from a server, which test processes share.

SAELens's import takes 8 to 10 seconds of a processor, and the tests start hundreds of
processes. `run` and `start` are what `subprocess` would be with `python` as its command;
`call` runs a function. Where our own code starts Python by `sys.executable`, the fixture
`forked` has it start `python()`, which does the same.

Tests of what happens at an import name `FRESH`, an interpreter that has imported nothing.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.forkserver.client import LIBRARIES
from tests.forkserver.client import LIMIT as LIMIT

ROOT = Path(__file__).parents[2]
FRESH = sys.executable
SHARED = "SAE_LENS_C2R_FORKSERVER"  # the variable that names the folder of another's server
Completed = subprocess.CompletedProcess[str]

_STUB = """\
#!{python} -IS
import sys
sys.path.insert(0, {here!r})
from client import main
main({folder!r}, {level!r})
"""
_CALL = """\
import pickle, sys
function, arguments = pickle.loads(bytes.fromhex(sys.argv[1]))
function(*arguments)
"""


_servers: list[subprocess.Popen[bytes]] = []  # whose input ends with this process


@cache
def folder() -> Path:
    """The folder of the server, which is started by the first who asks for it."""
    if SHARED in os.environ:
        return Path(os.environ.pop(SHARED))
    place = Path(mkdtemp(prefix="forkserver-"))
    server = subprocess.Popen(
        [FRESH, "-m", "tests.forkserver.server", str(place)],
        cwd=ROOT,
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert server.stdout.readline() == b"listening\n"
    _servers.append(server)
    here = str(Path(__file__).parent)
    python = sys._base_executable  # in a process of another server, FRESH is a script itself
    for level in ("", LIBRARIES):
        stub = place / level / "python"
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(_STUB.format(python=python, here=here, folder=str(place), level=level))
        stub.chmod(0o755)
    return place


def python(level: str | None = None) -> str:
    """A command that does what `python` does, in a process of the server."""
    return str(folder() / (level or "") / "python")


class Process(subprocess.Popen[str]):
    """A process of the server."""

    def kill(self) -> None:
        """Have it killed, and be waited for until it has ended."""
        self.send_signal(signal.SIGUSR1)


def start(*arguments: object, level: str | None = None, **options: Any) -> Process:
    """A process of `python` with these arguments, which has no input."""
    command = [python(level), *map(str, arguments)]
    return Process(command, stdin=subprocess.DEVNULL, text=True, **options)


def call(function: Callable[..., object], *arguments: Any) -> Process:
    """A process that calls a function of a module."""
    return start("-c", _CALL, pickle.dumps((function, arguments)).hex(), cwd=ROOT)


def run(*arguments: object, **options: Any) -> Completed:
    """What `python` with these arguments came to."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(*arguments, **pipes, **options) as process:
        out, errors = process.communicate()
    return Completed(process.args, process.returncode, out, errors)
