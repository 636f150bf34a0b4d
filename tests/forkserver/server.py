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
import select
import shutil
import signal
import socket
import sys
import weakref
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
    """SAELens, which does not know of this package, with its list of SAEs."""
    importlib.import_module("sae_lens")
    directory = importlib.import_module("sae_lens.loading.pretrained_saes_directory")
    directory.get_pretrained_saes_directory()
    assert "sae_lens_c2r" not in sys.modules


def import_all() -> None:
    """This package with all of its commands, and what else takes its time once."""
    import torch

    import sae_lens_c2r
    from sae_lens_c2r._support.errors import UserError
    from sae_lens_c2r.models import offline
    from sae_lens_c2r.saes import encoding

    torch._import_device_backends()  # an import of torch does, by default
    script = encoding._SCRIPT.stem
    # Beside transformers 4, what publishes does not import.
    ours = pkgutil.walk_packages(sae_lens_c2r.__path__, "sae_lens_c2r.", lambda _: None)
    for module in ours:
        if module.name.rpartition(".")[2] not in ("__main__", script):
            with suppress(UserError):
                importlib.import_module(module.name)
    # SAEBench is optional; torch imports the last when a process ends.
    models = "transformers.models.llama.modeling_llama"
    for name in (models, "sklearn.linear_model", "sklearn.metrics", "openai", "tabulate"):
        with suppress(ImportError):
            importlib.import_module(name)
    with suppress(ImportError):  # beside transformers 4
        from transformers.conversion_mapping import get_checkpoint_conversion_mapping

        get_checkpoint_conversion_mapping("llama")  # compiles a thousand patterns
    offline.documents()
    offline.model_folder(offline.MINILM)


LEVELS: dict[str, Callable[[], None]] = {
    LIBRARIES: import_libraries,
    WITHOUT_US: import_sae_lens,
    ALL: import_all,
}


def main(folder: Path) -> None:
    """Serve until the standard input ends."""
    listeners = {level: socket.socket(socket.AF_UNIX) for level in LEVELS}
    for level, listener in listeners.items():
        listener.bind(str(folder / f"{level}.socket"))
        listener.listen(128)
    print("listening", flush=True)  # whoever connects now waits for the imports
    for level, imports in LEVELS.items():
        imports()
        if level == ALL or os.fork() == 0:
            break
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False  # of thousands of torch's operators, in every process
    gc.collect()
    gc.freeze()
    serve(listeners[level], {"level": level, "python": str(folder / "python")})
    if level == ALL:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def serve(listener: socket.socket, about: dict[str, str]) -> None:
    """Fork a keeper for everyone who asks for a process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a keeper
    while True:
        if sys.stdin in select.select([sys.stdin, listener], [], [])[0]:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                keep(connection, about)
            finally:  # they may have gone
                os._exit(0)
        connection.close()


def keep(connection: socket.socket, about: dict[str, str]) -> None:
    """Fork what somebody asks for, tell them of its end, and kill it when they have gone."""
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("r") as asked:
        request = json.loads(asked.readline())
    pid = os.fork()
    if pid == 0:
        connection.close()
        become(request | about, files)
    for file in files:
        os.close(file)
    ended = os.pidfd_open(pid)
    if ended not in select.select([connection, ended], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
