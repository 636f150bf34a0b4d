"""Would the tests notice? `python -m tests.mutations [WORDS]` plants faults and runs tests.

Every fault is put into a copy of the repository by itself; with words, those whose file and
name have them, as in `hub/leaks.py: secrets published`. A fault that no test catches is a law
that nobody checks: the command then fails. The processes are forked from this one, which
imports what the package needs once.
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
from rich.console import Console
from rich.table import Table

from tests.mutations.faults import FAULTS, PACKAGE, Fault

ROOT = PACKAGE.parent
# The tests of a fault, by how the name of its file begins: those that should catch it first,
# for they stop at the first that fails.
TESTS = {
    "penalties": ("tests/penalties", "tests/test_laws.py", "tests/test_processes.py"),
    "penalties/processes.py": ("tests/test_processes.py",),
    "architectures": (
        "tests/architectures/test_schedule.py",
        *("tests/architectures", "tests/test_processes.py"),
    ),
    "architectures/search.py": ("tests/architectures/test_search.py", "tests/architectures"),
    "analysis": ("tests/analysis",),
    "_support": ("tests/evaluation/test_evaluate.py", "tests/training/test_killing.py"),
    "training": ("tests/training/test_plan.py", "tests/training/test_train.py"),
    "training/stream.py": (
        *("tests/training/test_stream.py", "tests/training/test_shared_stream.py"),
    ),
    "training/annealing.py": ("tests/training/test_annealing.py",),
    "training/norm_filter.py": ("tests/training/test_norm_filter.py",),
    "training/model_check.py": ("tests/training/test_model_check.py",),
    "_support/yaml_text.py": ("tests/releases",),
    "training/long_run.py": (
        *("tests/training/test_long_run.py", "tests/training/test_ranks.py"),
        "tests/training/test_starts.py",
    ),
    "training/checkpoint.py": (
        *("tests/training/test_checkpoint.py", "tests/training/test_killing.py"),
    ),
    "training/train.py": (
        *("tests/training/test_joined_release.py", "tests/training/test_killing.py"),
    ),
    "training/finished.py": (
        *("tests/training/test_plan.py", "tests/training/test_train.py"),
        "tests/training/test_killing.py",
    ),
    "training/shared_stream.py": (
        *("tests/training/test_norm_filter.py", "tests/training/test_shared_stream.py"),
        "tests/training/test_ranks.py",
    ),
    "training/joined_": ("tests/training/test_teams.py", "tests/training/test_joined.py"),
    "training/teams.py": ("tests/training/test_teams.py",),
    "training/fitting.py": ("tests/training/test_joined_release.py",),
    "training/ranks.py": (
        *("tests/training/test_ranks.py", "tests/training/test_joined_release.py"),
    ),
    "training/agreement.py": ("tests/training/test_ranks.py",),
    "training/heartbeat.py": ("tests/training/test_ranks.py",),
    "cli/train.py": ("tests/training/test_ranks.py",),
    "training/runners.py": ("tests/training/test_fitting.py", "tests/training/test_train.py"),
    "training/placement.py": ("tests/training/test_placement.py",),
    "training/scaled_starts.py": ("tests/training/test_starts.py",),
    "training/sameness.py": ("tests/training/test_starts.py",),
    "saes": ("tests/saes/test_start_from.py",),
    "saes/origin.py": ("tests/hub/test_starts.py", "tests/training/test_starts.py"),
    "evaluation": (
        *("tests/evaluation/test_results.py", "tests/evaluation/test_processes.py"),
        *("tests/evaluation/test_evaluate.py", "tests/evaluation/test_sae_bench.py"),
    ),
    "hub": (
        "tests/hub/test_files.py",
        "tests/hub/test_prepare_upload.py",
        "tests/hub/test_upload.py",
    ),
    "hub/local/prepare_upload.py": ("tests/hub/test_starts.py",),
    "hub/card": (
        *("tests/hub/test_card.py", "tests/hub/test_readme.py", "tests/hub/test_snapshot.py"),
        "tests/hub/test_upload.py",
    ),
    "hub/remote": (
        *("tests/hub/test_snapshot.py", "tests/hub/test_library.py"),
        *("tests/hub/test_publish.py", "tests/hub/test_upload.py"),
    ),
    "hub/verify.py": ("tests/hub/test_upload.py",),
}


def tests_of(fault: Fault) -> tuple[str, ...]:
    """The tests that are to catch a fault."""
    fitting = [start for start in TESTS if fault.file.startswith(start)]
    return TESTS[max(fitting, key=len)]


@dataclass(frozen=True)
class Run:
    """The tests of a fault, or of a room without one, in a process of their own."""

    fault: Fault | None
    tests: tuple[str, ...]
    folder: Path

    def start(self) -> int:
        """Fork the process, and return its id."""
        left_out = shutil.ignore_patterns(".*", "demo-output", "results", "__pycache__")
        shutil.copytree(ROOT, self.folder / "copy", ignore=left_out)
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


def run_all(runs: list[Run]) -> dict[int, tuple[Run, float]]:
    """Run tests, as many at a time as there are processors; runs and seconds by number."""
    waiting, ended = list(enumerate(runs)), {}
    begun: dict[int, tuple[int, float]] = {}
    gc.freeze()  # what is imported stays shared with the processes
    while waiting or begun:
        while waiting and len(begun) < (os.cpu_count() or 1):
            number, run = waiting.pop(0)
            begun[run.start()] = number, time.monotonic()
        process, _ = os.wait()
        number, since = begun.pop(process)
        ended[number] = runs[number], time.monotonic() - since
        run, seconds = ended[number]
        name = run.fault.name if run.fault else f"no fault, {' '.join(run.tests)}"
        print(f"{name}: {run.caught_by() or 'NOTHING'} ({seconds:.0f} s)", flush=True)
        shutil.rmtree(run.folder / "copy")
    return ended


def main() -> None:
    """Plant the faults, and print the table."""
    words = " ".join(sys.argv[1:])
    chosen = [fault for fault in FAULTS if words in f"{fault.file}: {fault.name}"]
    needed = sorted({test for fault in chosen for test in tests_of(fault)})
    with TemporaryDirectory() as scratch:
        sound = [
            Run(None, (test,), Path(scratch, f"sound-{number}"))
            for number, test in enumerate(needed)
        ]
        for run, _ in run_all(sound).values():
            if failed := run.caught_by():
                print((run.folder / "output").read_text())
                sys.exit(f"{failed} fails without any fault.")
        runs = [
            Run(fault, tests_of(fault), Path(scratch, str(number)))
            for number, fault in enumerate(chosen)
        ]
        table = Table("fault", "file", "caught by", "seconds", title="Planted faults")
        survivors = []
        for _, (run, seconds) in sorted(run_all(runs).items()):
            assert run.fault is not None
            test = run.caught_by()
            table.add_row(run.fault.name, run.fault.file, test or "NOTHING", f"{seconds:.0f}")
            survivors += [] if test else [run.fault.name]
    Console(width=160).print(table)
    sys.exit(f"Nothing caught: {', '.join(survivors)}" if survivors else 0)


if __name__ == "__main__":
    main()
