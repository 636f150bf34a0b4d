"""Processes that fail in every way, and none that outlives what started it."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sae_lens_c2r.evaluation import process
from sae_lens_c2r.evaluation.results import Task
from sae_lens_c2r.evaluation.sae_bench import run_sae_bench
from sae_lens_c2r.models.reading import Reading
from sae_lens_c2r.saes.record import Evaluation, SAERecord
from sae_lens_c2r.saes.sae_ref import SAERef
from tests.forkserver import FRESH, LIMIT

NEVER = "import os, time; open('../../pid', 'w').write(str(os.getpid())); time.sleep(10_000)"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether processes end is asked of true ones, which import little here."""
    monkeypatch.setattr(sys, "executable", FRESH)


def double(body: str) -> str:
    """The program of a process that answers for one SAE, and then does one thing."""
    stub = (
        "import sys, types\n"
        "def run_request(request, answer):\n"
        "    print(request)\n"
        f"    answer({{'a': 1.5}})\n    exec({body!r})\n"
        "module = types.ModuleType('sae_lens_c2r.evaluation.sae_bench')\n"
        "module.run_request = run_request\n"
        "sys.modules[module.__name__] = module\n"
    )
    return stub + process.PROGRAM


CASES: dict[str, tuple[str, str | None]] = {
    "ends well": ("answer({'b': 2})", None),
    "goes on for ever": (f"answer({{'b': 2}}); {NEVER}", None),
    "does nothing": ("", "its process ended with status 0."),
    "is killed": ("import os; os.kill(os.getpid(), 9)", "its process ended with status -9."),
    "says why": ("raise ValueError('of\\n  this')", "ValueError: of this"),
    "is out of memory": ("bytearray(1 << 60)", "MemoryError"),
}


@pytest.mark.parametrize(("body", "said"), CASES.values(), ids=CASES)
def test_one_line_says_what_went_wrong_with_an_sae_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, said: str | None
) -> None:
    """A process that ends without a word has not answered for its first SAE either."""
    monkeypatch.setattr(process, "PROGRAM", double(body))
    given: dict[str, Any] = {}
    names = ["a", "b"] if said is None else ["a", "b", "c"]
    what: dict[str, Any] = {"reading": Reading(), "asked": Evaluation(metrics={})}
    tasks = [Task(name="core", source=SAERef(sae_id=n), sae=SAERecord(), **what) for n in names]
    log = tmp_path / "core.log"

    def give(task: Task, answer: Any) -> None:
        given[str(task.source.sae_id)] = answer if isinstance(answer, dict) else str(answer)

    run_sae_bench(tasks, log, give=give)
    assert list(given) == names
    assert given.pop("a") == {"a": 1.5}
    if said is None:
        assert given == {"b": {"b": 2}}
    elif "status" in said:  # it is asked again, and answers for the next
        assert given["b"] == {"a": 1.5}
    else:
        assert given == {"b": f"{said} Log: {log}", "c": {"a": 1.5}}
    assert '"sae_id":"a"' in log.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) in (
        ["core.log"],
        ["core.log", "pid"],
    )


PARENT = """
import signal, sys
from pathlib import Path
from sae_lens_c2r.evaluation import process
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
folder = Path(sys.argv[1])
process.PROGRAM = sys.argv[2]
process.run_process("", lambda answer: False, working=folder, log=folder / "log")
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_ends_with_what_started_it(tmp_path: Path, how: signal.Signals) -> None:
    working, pid = tmp_path / "working", tmp_path / "pid"
    working.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(working), double(NEVER)], stderr=subprocess.DEVNULL
    )
    while not pid.exists() or not pid.read_text():
        assert parent.poll() is None
        time.sleep(0.02)
    ended = os.pidfd_open(int(pid.read_text()))
    parent.send_signal(how)
    parent.wait(LIMIT)
    assert select.select([ended], [], [], LIMIT)[0], "The process outlives what started it."
    os.close(ended)
