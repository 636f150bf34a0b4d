"""The forked process: takes over a request's files and environment, and runs its program."""

import atexit
import importlib
import os
import runpy
import signal
import sys
import threading
import types
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any, NoReturn

from tests.forkserver.client import LIBRARIES

# They read the environment when they are imported, and are read themselves ever after.
READ_THE_ENVIRONMENT = ("huggingface_hub.constants", "datasets.config")


def become(request: dict[str, Any], files: list[int]) -> NoReturn:
    """Run what was asked for, and end."""
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(request["cwd"])
        adopt(request["env"])
        sys.executable = request["python"]
        if request["level"] == LIBRARIES:
            sys.meta_path.insert(0, Torch())
        status = run(request["arguments"])
        threading._shutdown()  # type: ignore[attr-defined]  # wait for threads
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def adopt(environment: dict[str, str]) -> None:
    """Be in an environment, as if the imports had been done in it."""
    os.environ.clear()
    os.environ.update(environment)
    for name in READ_THE_ENVIRONMENT:
        importlib.reload(importlib.import_module(name))
    from huggingface_hub import constants, hf_api

    hf_api.api.endpoint = constants.ENDPOINT  # made once for all, by the import
    sys.path.pop(0)  # that of the server
    given = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in given if path and path not in sys.path]


class Torch(MetaPathFinder, Loader):
    """PyTorch as if it had not been imported: an import has it load its entry points."""

    def __init__(self) -> None:
        self.torch = sys.modules.pop("torch")
        self.spec = self.torch.__spec__

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname == "torch" else None

    def create_module(self, _: ModuleSpec) -> types.ModuleType:
        return self.torch

    def exec_module(self, module: types.ModuleType) -> None:
        sys.meta_path.remove(self)
        module.__spec__ = self.spec
        if module._is_device_backend_autoload_enabled():
            module._import_device_backends()


def run(arguments: list[str]) -> int:
    """Do what `python` does with its arguments, and return the status to end with."""
    try:
        execute(*arguments)
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        return 1
    return 0


def execute(kind: str, *rest: str) -> None:
    """Execute a program, a module or a script as `__main__`."""
    if kind == "-c":
        program, *arguments = rest
        sys.argv = ["-c", *arguments]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), main.__dict__)
    elif kind == "-m":
        module, *arguments = rest
        sys.argv = [module, *arguments]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [kind, *rest]
        sys.path.insert(0, os.path.dirname(os.path.abspath(kind)))
        runpy.run_path(kind, run_name="__main__")
