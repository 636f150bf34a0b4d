"""Evaluating SAEs: what is asked for, what is there already, and what remains to be run."""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from sae_lens_c2r.errors import UserError
from sae_lens_c2r.evaluation.plan import Options, Task, check, plan
from sae_lens_c2r.evaluation.processes import Processes
from sae_lens_c2r.evaluation.request import Request
from sae_lens_c2r.evaluation.results import (
    GATHERED,
    LOG,
    RESULT,
    gather,
    read_about,
    read_metrics,
    write_json,
    write_result,
)
from sae_lens_c2r.sources import Source


def evaluate(
    sources: Sequence[Source],
    options: Options,
    *,
    on_error: Callable[[str], None],
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run what is missing, and gather everything into `evaluation.json`.

    Args:
        sources: The SAEs.
        options: What is asked for.
        on_error: Told, in one line, of each SAE and each evaluation that fails.
        tell: Told of what is done.

    Returns:
        What `evaluation.json` holds.

    Raises:
        UserError: If what is asked for does not exist; nothing has been run then.
    """
    check(options)
    options.out.mkdir(parents=True, exist_ok=True)
    tasks: list[Task] = []
    for source in sources:
        try:
            tasks += plan(source, options, on_error=on_error)
        except UserError as error:
            on_error(str(error))
    todo = [task for task in tasks if not _is_done(task)]
    if len(todo) < len(tasks):
        tell(f"{len(tasks) - len(todo)} of {len(tasks)} evaluations were done before.")
    processes = Processes(at_once=options.at_once, hours=options.hours)
    failures: dict[str, str] = {}
    ended = 0

    def run(task: Task) -> None:
        tell(f"{task.title}: begun. Its log is {task.folder / LOG}")
        reason = _run(task, options, processes)
        if reason is not None:
            failures[task.title] = f"{task.title}: {reason} Its log: {task.folder / LOG}"

    def done(task: Task) -> None:
        nonlocal ended
        ended += 1
        tell(
            f"{task.title}: {'failed' if task.title in failures else 'done'}. "
            f"{ended} of {len(todo)}"
        )

    try:
        processes.run_all(todo, run, done)
    finally:
        gathered = gather(options.out)
        write_json(options.out / GATHERED, gathered)
    for reason in failures.values():
        on_error(reason)
    return gathered


def _is_done(task: Task) -> bool:
    about = read_about(task.folder)
    if about is None or not about.is_of(task.about):
        return False
    try:
        read_metrics(task.folder / RESULT)
    except UserError:
        return False
    return True


def _run(task: Task, options: Options, processes: Processes) -> str | None:
    """Run an evaluation, and put its result into place; what went wrong, in one line."""
    task.folder.mkdir(parents=True, exist_ok=True)
    working = Path(mkdtemp(prefix=".working-", dir=task.folder)).resolve()
    try:
        if options.data is not None:
            _link(options.data.resolve(), working, leave_out=options.out.resolve())
        source = task.source
        if source.folder is not None:
            source = replace(source, folder=source.folder.resolve())
        settings = {key: value for key, value in task.about.settings.items() if key != "text"}
        request = Request(
            evaluation=task.about.evaluation,
            source=source,
            model=task.about.model or "",
            text=_absolute(options.text),
            settings=settings,
            device=options.device,
            result=working / RESULT,
        )
        request.write(working / "request.json")
        begun = time.monotonic()
        reason = processes.run_worker(
            working / "request.json", folder=working, log=task.folder / LOG
        )
        if reason is not None:
            return reason
        try:
            read_metrics(working / RESULT)
        except UserError as error:
            return str(error)
        about = replace(task.about, seconds=round(time.monotonic() - begun, 1))
        write_result(task.folder, about, working / RESULT)
        return None
    except OSError as error:
        return f"{error}."
    finally:
        shutil.rmtree(working, ignore_errors=True)


def _link(data: Path, working: Path, *, leave_out: Path) -> None:
    """Links to all files of a folder: what SAEBench writes beside them stays where it works."""

    def left_out(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(folder, name) == leave_out]

    shutil.copytree(
        data, working, copy_function=os.symlink, dirs_exist_ok=True, ignore=left_out
    )


def _absolute(text: str | None) -> str | None:
    """A file's path, which a process elsewhere finds too; the name of a dataset as it is."""
    return str(Path(text).resolve()) if text and Path(text).exists() else text
