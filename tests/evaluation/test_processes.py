"""Workers that fail in every way, and none that outlives what started it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import pytest

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.evaluation import worker
from sae_lens_c2r.evaluation.worker import INSIDE, run_worker
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


def put_double(folder: Path, body: str) -> Path:
    """A folder to work in, and in it a module whose worker does one thing."""
    (folder / INSIDE).mkdir()
    double = folder / "double.py"
    double.write_text(
        "import sys\nfrom pathlib import Path\nfrom sae_lens_c2r.evaluation import worker\n"
        f"def run(_): exec({body!r})\n"
        "worker._run = run\nworker.main(Path(sys.argv[1]))\n"
    )
    return double


@pytest.mark.parametrize("how", BODIES)
def test_one_line_says_what_went_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(worker, "PROGRAM", str(put_double(tmp_path, BODIES[how])))
    hours = 0.5 / 3600 if how == "never_ends" else 1
    expected = {
        "is_killed": "its process was ended by SIGKILL, as when memory is short.",
        "says_why": "ValueError: of this",
        "is_out_of_memory": "MemoryError: MemoryError",
        "never_ends": f"took more than {hours:g} hours, and was ended.",
    }
    reason = None
    try:
        run_worker(tmp_path, log=tmp_path / "log", hours=hours, stop=Event())
    except UserError as error:
        reason = str(error)
    assert reason == expected.get(how)


def test_a_worker_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "PROGRAM", str(put_double(tmp_path, BODIES["never_ends"])))
    stop = Event()
    stop.set()
    with pytest.raises(UserError, match="stopped"):
        run_worker(tmp_path, log=tmp_path / "log", hours=1, stop=stop)


PARENT = """
import signal, sys
from pathlib import Path
from threading import Event
from sae_lens_c2r.evaluation import worker
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
folder = Path(sys.argv[1])
worker.PROGRAM = str(folder / "double.py")
worker.run_worker(folder, log=folder / "log", hours=1, stop=Event())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_what_started_them(tmp_path: Path, how: signal.Signals) -> None:
    body = "import os, time; Path('pid').write_text(str(os.getpid())); time.sleep(10_000)"
    put_double(tmp_path, body)
    pid = tmp_path / INSIDE / "pid"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stderr=subprocess.DEVNULL
    )
    while not pid.exists() or not pid.read_text():
        assert parent.poll() is None
        time.sleep(0.02)
    process = int(pid.read_text())
    parent.send_signal(how)
    parent.wait(LIMIT)
    for _ in range(int(LIMIT / 0.02)):
        if not _runs(process):
            return
        time.sleep(0.02)
    raise AssertionError("The worker outlives what started it.")


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
        return "Z" not in Path(f"/proc/{process}/stat").read_text().split()[2]
    except (OSError, IndexError):
        return False
