"""Workers that fail in every way, and none that outlives what started it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sae_lens_c2r.evaluation import processes
from sae_lens_c2r.evaluation.processes import Processes
from tests.forkserver import FRESH, LIMIT

BODIES = {
    "ends_well": "",
    "is_killed": "import os; os.kill(os.getpid(), 9)",
    "says_why": "raise ValueError('of\\n  this')",
    "is_out_of_memory": "bytearray(1 << 60)",
    "never_ends": "import time; time.sleep(10_000)",
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether processes end is asked of true ones, which import little here."""
    monkeypatch.setattr(sys, "executable", FRESH)


@pytest.fixture(params=BODIES)
def body(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A module whose worker does one thing."""
    program = (
        "import sys\nfrom sae_lens_c2r.evaluation import worker\n"
        "def run(_): exec(BODY)\nworker._run = run\nworker.main(*sys.argv[1:])\n"
    )
    (tmp_path / "double.py").write_text(f"BODY = {BODIES[request.param]!r}\n{program}")
    monkeypatch.setattr(processes, "PROGRAM", str(tmp_path / "double.py"))
    return request.param


def test_one_line_says_what_went_wrong(tmp_path: Path, body: str) -> None:
    hours = 0.5 / 3600 if body == "never_ends" else 1
    ours = Processes(at_once=1, hours=hours)
    outcome = ours.run_worker(
        tmp_path / "request",
        modules=tmp_path / "modules",
        folder=tmp_path,
        log=tmp_path / "log",
    )
    expected = {
        "ends_well": None,
        "is_killed": "its process was ended by SIGKILL, as when memory is short.",
        "says_why": "ValueError: of this",
        "is_out_of_memory": "MemoryError: MemoryError",
        "never_ends": f"took more than {hours:g} hours, and was ended.",
    }
    assert outcome == expected[body]


PARENT = """
import signal, sys
from pathlib import Path
from sae_lens_c2r.evaluation import processes
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
folder = Path(sys.argv[1])
processes.PROGRAM = str(folder / "double.py")
processes.Processes(at_once=1, hours=1).run_worker(
    folder, modules=folder / "modules", folder=folder, log=folder / "log"
)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_what_started_them(tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "double.py").write_text(
        "import os, sys, time\nfrom pathlib import Path\n"
        "from sae_lens_c2r.evaluation import worker\n"
        "def run(_):\n    Path('pid').write_text(str(os.getpid())); time.sleep(10_000)\n"
        "worker._run = run\nworker.main(*sys.argv[1:])\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stderr=subprocess.DEVNULL
    )
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert parent.poll() is None
        time.sleep(0.02)
    worker = int((tmp_path / "pid").read_text())
    parent.send_signal(how)
    parent.wait(LIMIT)
    for _ in range(int(LIMIT / 0.02)):
        if not _runs(worker):
            return
        time.sleep(0.02)
    raise AssertionError("The worker outlives what started it.")


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
        return "Z" not in Path(f"/proc/{process}/stat").read_text().split()[2]
    except (OSError, IndexError):
        return False
