"""Rows: what is kept of them, and when the processes end that execute their tasks."""

# Little is imported, as each of these processes imports it too.
import json
import os
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import NoReturn

import pytest

from benchmarks.rows import execute_all, read


def train_or_fail(task: tuple[str, Path]) -> NoReturn:
    """Opening a pipe waits for its other end, so one run fails while the other trains."""
    what, folder = task
    with (folder / "pipe").open("w" if what == "train" else "r"):
        if what == "fail":
            raise ZeroDivisionError
        Event().wait(300)  # until this process is ended, or for so long that nobody did
        (folder / "went on").touch()
        os._exit(1)


def test_each_run_is_a_line_and_a_line_that_was_cut_short_is_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "runs.jsonl"
    execute_all([{"run": number} for number in (1, 2, 3)], dict, path, jobs=2)
    with path.open("a") as file:
        file.write('{"run": 4, "dou')
    assert sorted(each["run"] for each in read(path)) == [1, 2, 3]
    assert [json.loads(line) for line in path.read_text().splitlines()] == read(path)


def test_a_failure_ends_the_runs_beside_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    tasks = [("train", tmp_path), ("fail", tmp_path)]
    with pytest.raises(ZeroDivisionError):
        execute_all(tasks, train_or_fail, tmp_path / "runs.jsonl", jobs=2)
    assert not (tmp_path / "went on").exists()


def test_processes_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    arguments = ([("train", tmp_path)], train_or_fail, tmp_path / "runs.jsonl")
    parent = get_context("spawn").Process(None, execute_all, None, arguments, {"jobs": 1})
    parent.start()
    with (tmp_path / "pipe").open() as pipe:  # as soon as its process trains
        parent.kill()
        pipe.read()  # until that process has ended, too
    parent.join()
    assert not (tmp_path / "went on").exists()
