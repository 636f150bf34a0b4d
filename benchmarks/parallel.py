"""Experiments of many runs: in parallel, each kept as it ends."""

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

Run = TypeVar("Run")
Result = dict[str, Any]


def read(results: Path) -> list[Result]:
    """The results so far. A last line that the end of its process cut short is taken out."""
    text = results.read_text() if results.exists() else ""
    whole, newline, cut = text.rpartition("\n")
    if cut:
        results.write_text(whole + newline)
    return [json.loads(line) for line in whole.splitlines()]


def execute_all(
    runs: Sequence[Run],
    execute: Callable[[Run], Result],
    results: Path,
    *,
    processes: int,
    what: str = "Training SAEs",
) -> None:
    """Execute the runs in parallel, each by one thread, and write what each returns.

    After a failure, or an interrupt, the runs that have not ended are given up.
    """
    results.parent.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["TQDM_DISABLE"] = "1"  # SAELens's bar for each of them
    # glibc would give large activations back, and have them cleared again, at every step.
    for threshold in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        os.environ[threshold] = "8000000000"
    columns = (
        *Progress.get_default_columns()[:-1],
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    spawn = get_context("spawn")
    with (
        ProcessPoolExecutor(processes, spawn, initializer=_end_with_parent) as pool,
        Progress(*columns) as progress,
        results.open("a") as file,
    ):
        task = progress.add_task(what, total=len(runs))
        try:
            for future in as_completed([pool.submit(execute, run) for run in runs]):
                file.write(json.dumps(future.result()) + "\n")
                file.flush()
                progress.advance(task)
        except BaseException:
            # Leaving the pool would wait for runs of which none is written down any more.
            for worker in active_children():
                worker.terminate()
            raise


def _end_with_parent() -> None:
    """See to it that this process ends when its parent does, however that came to its end."""

    def wait() -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()
