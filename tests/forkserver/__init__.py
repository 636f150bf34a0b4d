"""Processes with all imports done: they are forked from a server, once for each test process.

SAELens's import takes 8 to 10 seconds of a processor, and the tests start hundreds of
processes. `run` and `start` are what `subprocess` would be with `python` as its command;
`call` runs a function. Where our own code starts Python by `sys.executable`, the fixture
`forked` has it start `python()`, which does the same.

Tests of what happens at an import name `FRESH`, an interpreter that has imported nothing.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import Any

from tests.forkserver.client import LIBRARIES, LIMIT, Process, ask

__all__ = [
    "FRESH",
    "LIBRARIES",
    "LIMIT",
    "ROOT",
    "Completed",
    "Process",
    "call",
    "python",
    "run",
    "start",
]

ROOT = Path(__file__).parents[2]
FRESH = sys.executable
Completed = subprocess.CompletedProcess[str]

_STUB = """\
#!{python} -IS
import sys
sys.path.insert(0, {root!r})
from tests.forkserver.client import main
main({folder!r})
"""
_CALL = """\
import pickle, sys
function, arguments = pickle.loads(bytes.fromhex(sys.argv[1]))
function(*arguments)
"""


_servers: list[subprocess.Popen[bytes]] = []  # whose input ends with this process


@cache
def _folder() -> Path:
    """The folder of the server, which is started by the first who asks for it."""
    folder = Path(mkdtemp(prefix="forkserver-"))
    server = subprocess.Popen(
        [FRESH, "-m", "tests.forkserver.server", str(folder)],
        cwd=ROOT,
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"listening\n"
    _servers.append(server)
    stub = folder / "python"
    stub.write_text(_STUB.format(python=FRESH, root=str(ROOT), folder=str(folder)))
    stub.chmod(0o755)
    return folder


def python() -> str:
    """A command that does what `python` does, in a process of the server."""
    return str(_folder() / "python")


def start(
    *arguments: object,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdout: int = 1,
    stderr: int = 2,
    level: str | None = None,
) -> Process:
    """A process of `python` with these arguments, which has no input."""
    with open(os.devnull) as nothing:
        return ask(
            _folder(),
            [str(argument) for argument in arguments],
            env=dict(os.environ if env is None else env),
            cwd=str(cwd or Path.cwd()),
            files=(nothing.fileno(), stdout, stderr),
            level=level,
        )


def call(function: Callable[..., object], *arguments: Any) -> Process:
    """A process that calls a function of a module."""
    return start("-c", _CALL, pickle.dumps((function, arguments)).hex(), cwd=ROOT)


def run(
    *arguments: object,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    level: str | None = None,
) -> Completed:
    """What `python` with these arguments came to."""
    command = [str(argument) for argument in arguments]
    with TemporaryFile() as out, TemporaryFile() as errors:
        files = {"stdout": out.fileno(), "stderr": errors.fileno()}
        status = start(*command, env=env, cwd=cwd, level=level, **files).wait()
        out.seek(0)
        errors.seek(0)
        return Completed(command, status, out.read().decode(), errors.read().decode())
