"""The rows that are kept of tasks, which processes of their own execute side by side."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar
from unittest.mock import patch

from rich.progress import track

Task = TypeVar("Task")
Row = Mapping[str, Any]
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TQDM_DISABLE": "1",  # SAELens's bar for each SAE
    # glibc would give large activations back, and have them cleared again, at every step.
    "MALLOC_MMAP_THRESHOLD_": "8000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
}


def read(path: Path) -> list[Row]:
    """Read the rows so far. A last line that the end of its process cut short is taken out."""
    text = path.read_text() if path.exists() else ""
    whole, newline, cut = text.rpartition("\n")
    if cut:
        path.write_text(whole + newline)
    return [json.loads(line) for line in whole.splitlines()]


def execute_all(
    tasks: Sequence[Task], execute: Callable[[Task], Row], path: Path, *, jobs: int
) -> None:
    """Execute tasks in parallel, append what each returns, and give up after a failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    spawn = get_context("spawn")
    with (
        patch.dict(os.environ, ENVIRONMENT),
        ProcessPoolExecutor(jobs, spawn, initializer=_end_with_parent) as pool,
        path.open("a") as file,
    ):
        futures = [pool.submit(execute, task) for task in tasks]
        try:
            for future in track(as_completed(futures), "Training SAEs", len(futures)):
                file.write(json.dumps(future.result()) + "\n")
                file.flush()
        except BaseException:
            # Leaving the pool would wait for tasks of which none is written down any more.
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
