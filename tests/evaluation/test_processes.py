"""Workers that fail in every way, and none that outlives what started it."""

import os
import select
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

NEVER = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(10_000)"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether processes end is asked of true ones, which import little here."""
    monkeypatch.setattr(sys, "executable", FRESH)


def put_double(folder: Path, body: str) -> str:
    """A folder to work in, and in it a module whose worker does one thing."""
    (folder / INSIDE).mkdir()
    double = folder / "double.py"
    double.write_text(
        "import sys\nfrom pathlib import Path\nfrom sae_lens_c2r.evaluation import worker\n"
        "def run(path):\n"
        f"    (path / 'a.json').write_text('')\n    exec({body!r})\n"
        "worker._run = run\nworker.main(Path(sys.argv[1]))\n"
    )
    return str(double)


CASES: dict[str, tuple[str, float, str | None]] = {
    "ends well": ("(path / 'b.json').write_text('')", 1, None),
    "goes on for ever": (f"(path / 'b.json').write_text(''); {NEVER}", 1, None),
    "does nothing": ("", 1, "it printed nothing."),
    "is killed": (
        "import os; os.kill(os.getpid(), 9)",
        1,
        "SIGKILL, perhaps for lack of memory.",
    ),
    "says why": ("raise ValueError('of\\n  this')", 1, "ValueError: of this"),
    "is out of memory": ("bytearray(1 << 60)", 1, "MemoryError: MemoryError"),
    "never ends": (NEVER, 0.5 / 3600, "took more than 0.000138889 hours, and was ended."),
    "is stopped": (NEVER, 0.0, "was stopped."),
}


@pytest.mark.parametrize(("body", "hours", "said"), CASES.values(), ids=CASES)
def test_one_line_says_what_went_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, hours: float, said: str | None
) -> None:
    monkeypatch.setattr(worker, "PROGRAM", put_double(tmp_path, body))
    stop, reason, results = Event(), None, []
    logs = dict.fromkeys("ab", tmp_path / "log")
    if not hours:
        stop.set()
    try:
        for result, _ in run_worker(tmp_path, logs, hours=hours or 1, stop=stop):
            results.append(result.stem)
    except UserError as error:
        reason = str(error)
    assert reason == said or (said and reason.endswith(said))
    if body != NEVER:
        assert results == (["a"] if said else ["a", "b"])


PARENT = """
import signal, sys
from pathlib import Path
from threading import Event
from sae_lens_c2r.evaluation import worker
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
folder = Path(sys.argv[1])
worker.PROGRAM = str(folder / "double.py")
list(worker.run_worker(folder, {"b": folder / "log"}, hours=1, stop=Event()))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_what_started_them(tmp_path: Path, how: signal.Signals) -> None:
    put_double(tmp_path, NEVER)
    pid = tmp_path / INSIDE / "pid"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stderr=subprocess.DEVNULL
    )
    while not pid.exists() or not pid.read_text():
        assert parent.poll() is None
        time.sleep(0.02)
    ended = os.pidfd_open(int(pid.read_text()))
    parent.send_signal(how)
    parent.wait(LIMIT)
    assert select.select([ended], [], [], LIMIT)[0], "The worker outlives what started it."
    os.close(ended)


def test_a_worker_has_the_downloads_of_what_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", "hf")
    monkeypatch.setenv("HF_HUB_CACHE", "$HF_HOME/hub")
    monkeypatch.setenv("HF_DATASETS_CACHE", "~/texts")
    for name in ("HF_ASSETS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert worker._caches() == {
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_CACHE": str(tmp_path / "hf" / "hub"),
        "HF_DATASETS_CACHE": str(Path.home() / "texts"),
    }
