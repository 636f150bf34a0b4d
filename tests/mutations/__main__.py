"""Would the tests notice? `python -m tests.mutations [WORDS]` plants faults and runs tests.

Every fault is put into a copy of the repository by itself; with words, those whose folder and
name have them, as in `hub: secrets published`. A fault that no test catches is a law that
nobody checks: the command then fails. The processes are forked from this one, which imports
what the package needs once.
"""

import gc
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # or torch would import the package
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"  # as tests/conftest.py: it is read at import

import huggingface_hub  # noqa: F401
import hypothesis  # noqa: F401
import matplotlib.figure  # noqa: F401
import pytest
import sae_lens  # noqa: F401

from tests.mutations.faults import FAULTS, PACKAGE, Fault


@dataclass(frozen=True)
class Run:
    """The tests of a fault, or of none, in a copy of the repository of their own."""

    name: str
    fault: Fault | None
    tests: tuple[str, ...]
    folder: Path

    def start(self) -> int:
        """Fork the process, and return its id."""
        left_out = shutil.ignore_patterns(".*", "demo-output", "results", "__pycache__")
        shutil.copytree(PACKAGE.parent, self.folder / "copy", ignore=left_out)
        if self.fault is not None:
            self.fault.plant(self.folder / "copy" / PACKAGE.name)
        process = os.fork()
        if not process:
            self._test()
        return process

    def _test(self) -> None:
        output = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
            del sys.modules[name]  # those of the copy are meant
        os.chdir(self.folder / "copy")
        sys.path[:0] = [str(Path.cwd())]
        os.environ["PYTHONPATH"] = str(Path.cwd())
        os.environ["HYPOTHESIS_PROFILE"] = "fault"
        del os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]  # for processes that tests start
        options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not exhaustive"]
        status = pytest.main([*options, *self.tests])
        sys.stdout.flush()
        os._exit(int(status))

    def caught_by(self) -> str | None:
        """The first test that failed, if one did."""
        lines = (self.folder / "output").read_text(errors="replace").splitlines()
        failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        return failed[0].split()[1] if failed else None


def run_all(runs: list[Run]) -> None:
    """Run tests, as many at a time as there are processors, and print what they caught."""
    waiting = list(runs)
    begun: dict[int, tuple[Run, float]] = {}
    gc.freeze()  # what is imported stays shared with the processes
    while waiting or begun:
        while waiting and len(begun) < (os.cpu_count() or 1):
            run = waiting.pop(0)
            begun[run.start()] = run, time.monotonic()
        process, _ = os.wait()
        run, since = begun.pop(process)
        seconds = time.monotonic() - since
        print(f"{run.name}: {run.caught_by() or 'NOTHING'} ({seconds:.0f} s)", flush=True)
        shutil.rmtree(run.folder / "copy")


def main() -> None:
    """Run the tests without a fault, then with each."""
    words = " ".join(sys.argv[1:])
    chosen = [fault for fault in FAULTS if words in str(fault)]
    needed = sorted({test for fault in chosen for test in fault.tests})
    with TemporaryDirectory() as scratch:
        sound = [
            Run(f"no fault, {test}", None, (test,), Path(scratch, f"sound-{number}"))
            for number, test in enumerate(needed)
        ]
        run_all(sound)
        for run in sound:
            if failed := run.caught_by():
                print((run.folder / "output").read_text())
                sys.exit(f"{failed} fails without any fault.")
        runs = [
            Run(str(fault), fault, fault.tests, Path(scratch, str(number)))
            for number, fault in enumerate(chosen)
        ]
        run_all(runs)
        survivors = [run.name for run in runs if run.caught_by() is None]
    print(f"{len(runs) - len(survivors)} of {len(runs)} planted faults are caught.")
    sys.exit(f"Nothing caught: {', '.join(survivors)}" if survivors else 0)


if __name__ == "__main__":
    main()
