"""Experiments of many runs: what is kept of them, and when their processes end."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from threading import Event
from typing import NoReturn
from unittest.mock import patch

import pytest

from benchmarks.parallel import execute_all, read

PATIENCE = 300  # seconds


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """What is set for the runs' processes is not set for the tests that come after."""
    with patch.dict(os.environ):
        yield


def double(run: int) -> dict[str, int]:
    return {"run": run, "doubled": 2 * run}


def train_or_fail(of: tuple[str, Path]) -> NoReturn:
    """Opening the pipe waits for the other end: the one fails while the other trains."""
    what, folder = of
    if what == "train":
        with (folder / "pipe").open("w"):
            train(folder)
    with (folder / "pipe").open():
        raise ZeroDivisionError


def train(folder: Path) -> NoReturn:
    """A run that goes on until its process is ended, or for so long that nobody did."""
    print("training", flush=True)
    Event().wait(PATIENCE)
    (folder / "went on").touch()
    os._exit(1)


def test_each_run_is_a_line_and_a_line_that_was_cut_short_is_taken_out(tmp_path: Path) -> None:
    results = tmp_path / "folder" / "runs.jsonl"
    execute_all([1, 2, 3], double, results, processes=2)
    assert sorted(each["doubled"] for each in read(results)) == [2, 4, 6]
    with results.open("a") as file:
        file.write('{"run": 4, "dou')
    assert sorted(each["run"] for each in read(results)) == [1, 2, 3]
    assert [json.loads(line) for line in results.read_text().splitlines()] == read(results)


def test_a_failure_ends_the_runs_beside_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    runs = [("train", tmp_path), ("fail", tmp_path)]
    with pytest.raises(ZeroDivisionError):
        execute_all(runs, train_or_fail, tmp_path / "runs.jsonl", processes=2)
    assert not (tmp_path / "went on").exists()


def test_processes_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from pathlib import Path\n"
        "from benchmarks.parallel import execute_all\n"
        "from tests.test_parallel_runs import train\n"
        "if __name__ == '__main__':\n"
        f"    folder = Path({str(tmp_path)!r})\n"
        "    execute_all([folder], train, folder / 'runs.jsonl', processes=1)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    parent = subprocess.Popen(
        [sys.executable, program], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    assert any("training" in line for line in parent.stdout)
    parent.send_signal(SIGKILL)
    parent.communicate()  # until nobody, the worker included, can write there any more
    assert not (tmp_path / "went on").exists()
