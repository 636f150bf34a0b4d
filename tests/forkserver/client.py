"""Asking the server for a process. A light module: `python()` is a script that imports it."""

import json
import os
import select
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

LIMIT = 900.0  # seconds: many times what anything takes, there only to end what hangs
LIBRARIES, WITHOUT_US, ALL = "libraries", "sae_lens", "all"


def ask(
    folder: Path,
    arguments: list[str],
    *,
    env: dict[str, str],
    cwd: str,
    files: tuple[int, int, int],  # its standard input, output and error
    level: str | None = None,  # how much it has imported
) -> "Process":
    """Have a process of the server in a folder started."""
    if level is None:  # as much as its environment would have an import of SAELens bring
        autoload = env.get("TORCH_DEVICE_BACKEND_AUTOLOAD") != "0"
        level = ALL if autoload else WITHOUT_US
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(folder / level))
    socket.send_fds(connection, [b"\0"], files)
    request = {"arguments": arguments, "env": env, "cwd": cwd}
    connection.sendall(json.dumps(request).encode() + b"\n")
    return Process(connection)


class Process:
    """A process that runs, or has run."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._said = connection, connection.makefile("r")
        self.pid = int(self._said.readline())
        self.returncode: int | None = None
        self._waiting = threading.Lock()  # of one thread at a time

    def is_alive(self) -> bool:
        """Whether it still runs."""
        if self._waiting.acquire(blocking=False):
            with suppress(TimeoutError):
                self._wait(0)
            self._waiting.release()
        return self.returncode is None

    def kill(self, kind: int = signal.SIGKILL) -> None:
        """Send it a signal, if it still runs."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, kind)

    def wait(self, timeout: float = LIMIT) -> int:
        """Wait for its end, and return its status; that of a signal is negative."""
        try:
            with self._waiting:
                return self._wait(timeout)
        except TimeoutError:
            self.kill()
            raise

    def _wait(self, timeout: float) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise TimeoutError(f"The process {self.pid} has not ended in {timeout:g} s.")
            self.returncode = int(self._said.readline() or -signal.SIGKILL)
            self._said.close()
            self._connection.close()
        return self.returncode


def main(folder: str) -> None:
    """Be a process of the server, as far as whoever started this one can tell."""
    process = ask(
        Path(folder), sys.argv[1:], env=dict(os.environ), cwd=os.getcwd(), files=(0, 1, 2)
    )
    for file in (0, 1, 2):
        os.close(file)
    status = process.wait()
    if status < 0:
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
