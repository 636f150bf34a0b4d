"""A process of the server is what a new one would be, and ends when it should."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.forkserver import FRESH, python

SEEN = """
import json, os, signal, sys
import huggingface_hub, huggingface_hub.constants as constants
print(json.dumps([sys.argv, sys.path[0], os.getcwd(), sys.stdin.read(), __name__]))
for name, value in sorted(vars(constants).items()):
    if isinstance(value, str | bool | None) and name.isupper():
        print(name, value)
print(huggingface_hub.HfApi().endpoint, huggingface_hub.hf_api.api.endpoint)
print(sorted(os.environ.items()), signal.getsignal(signal.SIGINT), file=sys.stderr)
"""


def both(*arguments: object, **options: object) -> list[tuple[int, str, str]]:
    """What comes of a process of the server, and of a new one."""
    ended = [
        subprocess.run(
            [interpreter, *map(str, arguments)],
            **{"capture_output": True, "text": True, "input": "given", **options},
        )
        for interpreter in (python(), FRESH)
    ]
    return [(each.returncode, each.stdout, each.stderr) for each in ended]


def test_it_sees_what_a_new_one_sees(tmp_path: Path) -> None:
    changed = {"HF_ENDPOINT": "http://hub", "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    environment = {"PATH": os.environ["PATH"], "HF_HUB_DISABLE_XET": "1", **changed}
    (tmp_path / "program.py").write_text(SEEN)
    for arguments in (
        ("-c", SEEN, "one", "-c", "two words"),
        (tmp_path / "program.py", "one"),
        ("-m", "program", "one"),
    ):
        ours, theirs = both(*arguments, env=environment, cwd=tmp_path)
        assert ours == theirs
        assert ours[0] == 0


@pytest.mark.parametrize(
    ("program", "status", "says"),
    [
        ("", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no')", 1, "no"),
        ("raise ValueError('of this')", 1, "ValueError: of this"),
        ("import os; os.kill(os.getpid(), 15)", -signal.SIGTERM, ""),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt"),
        ("import atexit; atexit.register(print, 'late')", 0, ""),
        ("import threading as t; t.Timer(0.1, print, ['late']).start()", 0, ""),
    ],
)
def test_it_ends_like_a_new_one(program: str, status: int, says: str) -> None:
    ours, theirs = both("-c", program)
    assert ours[:2] == theirs[:2]
    assert ours[0] == status
    assert says in ours[2]


def test_it_ends_with_whoever_asked_for_it() -> None:
    program = "import time; print('begun', flush=True); time.sleep(900)"
    asked = subprocess.Popen([python(), "-c", program], stdout=subprocess.PIPE, text=True)
    assert asked.stdout.readline() == "begun\n"
    asked.kill()
    assert asked.stdout.read() == ""  # it could still write, if it had not ended
    asked.wait()
