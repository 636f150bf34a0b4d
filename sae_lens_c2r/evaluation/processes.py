"""Processes of evaluations: several at a time, none left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from sae_lens_c2r.evaluation import worker
from sae_lens_c2r.evaluation.worker import FAILED

PROGRAM = worker.__file__

Outcome = str | None  # what went wrong
_SILENT = "it printed nothing."


class Processes:
    """Starts workers and ends those that run when there is no more use for them.

    Args:
        at_once: How many run at a time.
        hours: How long one may take.
    """

    def __init__(self, *, at_once: int, hours: float) -> None:
        self._at_once, self._seconds = at_once, hours * 3600
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = Lock()
        self._closed = False

    def run_all(
        self, tasks: Sequence[Any], run: Callable[[Any], None], done: Callable[[Any], None]
    ) -> None:
        """Run tasks in threads, so many at a time.

        Args:
            tasks: What to run.
            run: Runs one, by `run_worker`.
            done: Told of each that has ended, in this thread.
        """
        pool = ThreadPoolExecutor(self._at_once)
        try:
            futures = {pool.submit(run, task): task for task in tasks}
            for future in as_completed(futures):
                future.result()
                done(futures[future])
        finally:
            self._end_all()
            pool.shutdown(cancel_futures=True)

    def run_worker(self, task: Path, *, modules: Path, folder: Path, log: Path) -> Outcome:
        """Run one worker to its end.

        Returns:
            What went wrong, in one line; `None` if nothing did.
        """
        with log.open("wb") as output, self._lock:
            if self._closed:
                return "stopped before it began."
            process = subprocess.Popen(
                [sys.executable, PROGRAM, str(task), str(modules)],
                cwd=folder,
                stdin=subprocess.PIPE,  # closed when this process ends, which ends the worker
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
        try:
            status = process.wait(self._seconds)
        except subprocess.TimeoutExpired:
            return f"took more than {self._seconds / 3600:g} hours, and was ended."
        finally:
            _end(process)  # or what it started, if that is all that is left
            with self._lock:
                self._running.discard(process)
            if process.stdin is not None:
                process.stdin.close()
        if status == 0:
            return None
        if status < 0:
            name = signal.Signals(-status).name
            memory = ", as when memory is short" if name == "SIGKILL" else ""
            return f"its process was ended by {name}{memory}."
        return _reason(log)

    def _end_all(self) -> None:
        with self._lock:
            self._closed = True
            for process in self._running:
                _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _reason(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    reasons = [line.removeprefix(FAILED) for line in lines if line.startswith(FAILED)]
    # SAEBench's core goes on after a failure, and has no other way to tell of it.
    swallowed = [line for line in lines if "Failed to evaluate SAE" in line]
    return (swallowed or reasons or [line for line in lines if line.strip()] or [_SILENT])[-1]
