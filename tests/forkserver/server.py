"""The server: `python -m tests.forkserver.server FOLDER`.

There are three, each forked from the one before it when that has done its imports:
`libraries` has what SAELens imports, for what is told of the import of SAELens; `sae_lens` has
SAELens and not this package, as for whoever loads an SAE without us; and `all` has everything.
"""

import gc
import importlib
import json
import os
import pkgutil
import selectors
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.forkserver.child import become
from tests.forkserver.client import ALL, LIBRARIES, WITHOUT_US


def import_libraries() -> None:
    """What SAELens imports, and takes its time to import."""
    for name in ("torch", "transformer_lens", "datasets", "wandb"):
        importlib.import_module(name)


def import_sae_lens() -> None:
    """SAELens, which does not know of this package."""
    importlib.import_module("sae_lens")
    assert "sae_lens_c2r" not in sys.modules


def import_all() -> None:
    """This package with all of its commands, and what else takes its time once."""
    import torch

    import sae_lens_c2r
    from sae_lens_c2r.offline import corpus
    from sae_lens_c2r.saes import encoding

    torch._import_device_backends()  # an import of torch does, by default
    script = encoding._SCRIPT.stem
    for module in pkgutil.walk_packages(sae_lens_c2r.__path__, "sae_lens_c2r."):
        if module.name.rpartition(".")[2] not in ("__main__", script):
            importlib.import_module(module.name)
    for name in ("sklearn.linear_model", "sklearn.metrics", "openai"):
        with suppress(ImportError):  # SAEBench is optional
            importlib.import_module(name)
    corpus.documents()


LEVELS: dict[str, Callable[[], None]] = {
    LIBRARIES: import_libraries,
    WITHOUT_US: import_sae_lens,
    ALL: import_all,
}


def main(folder: Path) -> None:
    """Serve until the standard input ends."""
    listeners = {level: socket.socket(socket.AF_UNIX) for level in LEVELS}
    for level, listener in listeners.items():
        listener.bind(str(folder / level))
        listener.listen(128)
    print("listening", flush=True)  # whoever connects now waits for the imports
    for level, imports in LEVELS.items():
        imports()
        if level == ALL or os.fork() == 0:
            break
    gc.collect()
    gc.freeze()
    serve(listeners[level], {"level": level, "python": str(folder / "python")})
    if level == ALL:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def serve(listener: socket.socket, about: dict[str, str]) -> None:
    """Fork a process for everyone who asks, and tell them of its end."""
    running: dict[int, socket.socket] = {}
    ended, ends = socket.socketpair()
    for side in (ended, ends):
        side.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ends.fileno())
    selector = selectors.DefaultSelector()
    for source in (sys.stdin, listener, ended):
        selector.register(source, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                return
            if key.fileobj is listener:
                connection, _ = listener.accept()
                if pid := fork(connection, about):
                    running[pid] = connection
                    selector.register(connection, selectors.EVENT_READ, pid)
            elif key.fileobj is ended:
                ended.recv(4096)
                tell_of_ends(running, selector)
            elif key.data in running:  # nobody waits for it any longer
                selector.unregister(key.fileobj)
                os.kill(key.data, signal.SIGKILL)


def fork(connection: socket.socket, about: dict[str, str]) -> int | None:
    """Fork what somebody asks for, unless they have gone."""
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("r") as asked:
        request = asked.readline()
    pid = None
    if request.endswith("\n"):
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            connection.close()
            become(json.loads(request) | about, files)
        tell(connection, pid)
    for file in files:
        os.close(file)
    return pid


def tell_of_ends(running: dict[int, socket.socket], selector: selectors.BaseSelector) -> None:
    """Tell everyone whose process has ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        connection = running.pop(pid, None)
        if connection is None:
            continue
        if connection in selector.get_map():
            selector.unregister(connection)
        tell(connection, os.waitstatus_to_exitcode(status))
        connection.close()


def tell(connection: socket.socket, number: int) -> None:
    """Send a number, to whoever still listens."""
    with suppress(OSError):
        connection.sendall(b"%d\n" % number)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
