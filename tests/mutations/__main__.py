"""Would the tests notice? `python -m tests.mutations [WORDS]` plants faults and runs tests.

Every fault is put into a copy of the repository by itself; with words, those whose folder and
name have them, as in `hub: secrets published`. A fault that no test catches is a law that
nobody checks: the command then fails. It does so at once if a fault no longer fits the code:
then write what the code says now into `faults.txt`.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.forkserver import LIBRARIES, python, start
from tests.mutations.faults import FAULTS, PACKAGE, Fault

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HYPOTHESIS_PROFILE": "fault"}
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-m", "not exhaustive")
PYTEST = """
import sys
for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
    del sys.modules[name]  # those of the copy are meant
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def first_to_fail(tests: Iterable[str], fault: Fault | None) -> str | None:
    """Run tests in a copy of the repository that has a fault, or none."""
    with TemporaryDirectory() as folder:
        copy, output = Path(folder, "copy"), Path(folder, "output")
        left_out = shutil.ignore_patterns(".*", "demo-output", "results", "__pycache__")
        shutil.copytree(PACKAGE.parent, copy, ignore=left_out)
        if fault is not None:
            fault.plant(copy / PACKAGE.name)
        with output.open("w") as file:
            status = start(
                *("-c", PYTEST, *OPTIONS, *tests),
                cwd=copy,
                env={**os.environ, "PYTHONPATH": str(copy)},
                level=LIBRARIES,
                stdout=file,
                stderr=subprocess.STDOUT,
            ).wait()
        said = output.read_text(errors="replace")
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if status and (fault is None or not failed):
        sys.exit(f"Without a fault, or without a failure, it ends with {status}:\n{said}")
    return failed[0].split()[1] if failed else None


def main() -> None:
    """Run the tests without a fault, then with each."""
    if misfits := [str(fault) for fault in FAULTS if not fault.fits()]:
        sys.exit(f"These do not fit the code any more: {', '.join(misfits)}")
    words = " ".join(sys.argv[1:])
    chosen = [fault for fault in FAULTS if words in str(fault)]
    needed = sorted({test for fault in chosen for test in fault.tests})
    os.environ |= ENVIRONMENT
    python()  # starts the server, before there are threads
    survivors = []

    def run(tests: Iterable[str], fault: Fault | None) -> None:
        begun = time.monotonic()
        caught_by = first_to_fail(tests, fault)
        name = fault or f"no fault, {', '.join(tests)}"
        print(
            f"{name}: {caught_by or 'NOTHING'} ({time.monotonic() - begun:.0f} s)", flush=True
        )
        if fault is not None and caught_by is None:
            survivors.append(fault)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda test: run([test], None), needed))
        list(pool.map(lambda fault: run(fault.tests, fault), chosen))
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} planted faults are caught.")
    sys.exit(f"Nothing caught: {', '.join(map(str, survivors))}" if survivors else 0)


if __name__ == "__main__":
    main()
