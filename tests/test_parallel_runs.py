"""Experiments of many runs: what is kept of them, and when their processes end."""

import json
import os
import subprocess
import sys
from pathlib import Path
from signal import SIGKILL, pause

import pytest

from benchmarks.parallel import execute_all, read


def double(run: int) -> dict[str, int]:
    return {"run": run, "doubled": 2 * run}


def fail_at_zero(of: tuple[int, Path]) -> dict[str, int]:
    run, started = of
    (started / str(run)).touch()
    return {"run": run, "share": 1 // run}


def train_for_ever(fifo: Path) -> dict[str, int]:
    with fifo.open("w") as held:
        held.write("training\n")
        held.flush()
        pause()
    return {}


def test_each_run_is_a_line_and_a_line_that_was_cut_short_is_taken_out(tmp_path: Path) -> None:
    results = tmp_path / "folder" / "runs.jsonl"
    execute_all([1, 2, 3], double, results, processes=2)
    assert sorted(each["doubled"] for each in read(results)) == [2, 4, 6]
    with results.open("a") as file:
        file.write('{"run": 4, "dou')
    assert sorted(each["run"] for each in read(results)) == [1, 2, 3]
    assert [json.loads(line) for line in results.read_text().splitlines()] == read(results)


def test_after_a_failure_no_further_run_is_started(tmp_path: Path) -> None:
    results, started = tmp_path / "runs.jsonl", tmp_path / "started"
    started.mkdir()
    runs = [(run, started) for run in (1, 0, *range(2, 100))]
    with pytest.raises(ZeroDivisionError):
        execute_all(runs, fail_at_zero, results, processes=1)
    assert {"run": 1, "share": 1} in read(results)
    assert len(list(started.iterdir())) < 100


def test_processes_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    program = (
        "from pathlib import Path\n"
        "from benchmarks.parallel import execute_all\n"
        "from tests.test_parallel_runs import train_for_ever\n"
        "if __name__ == '__main__':\n"
        f"    runs = [Path({str(fifo)!r})]\n"
        f"    execute_all(runs, train_for_ever, Path({str(tmp_path / 'out')!r}), processes=1)\n"
    )
    (tmp_path / "program.py").write_text(program)
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "program.py"],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stdout=subprocess.DEVNULL,
    )
    with fifo.open() as held:
        assert held.readline() == "training\n"
        parent.send_signal(SIGKILL)
        assert held.read() == ""  # its end comes when nobody holds it any more
    parent.wait()
