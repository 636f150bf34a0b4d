"""The script behind `python()`: asks the server for a process. It imports little."""

import json
import os
import signal
import socket
import sys

LIMIT = 900.0  # seconds: many times what anything takes, there only to end what hangs
LIBRARIES, WITHOUT_US, ALL = "libraries", "sae_lens", "all"


def main(folder: str, level: str) -> None:
    """Be a process of the server in a folder, which has imported what a level names.

    By default it is as much as this environment would have an import of SAELens bring.
    """
    autoload = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") != "0"
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"{folder}/{level or (ALL if autoload else WITHOUT_US)}.socket")
    # It is told that nobody asks any more, and this one waits until it has ended.
    signal.signal(signal.SIGUSR1, lambda *_: connection.shutdown(socket.SHUT_WR))
    socket.send_fds(connection, [b"\0"], [0, 1, 2])
    request = {"arguments": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}
    connection.sendall(json.dumps(request).encode() + b"\n")
    os.closerange(0, 3)
    connection.settimeout(LIMIT)
    status = int(connection.makefile().readline() or -signal.SIGKILL)
    if status < 0:
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
