"""Evaluating SAEs: what is there already, what remains to be run, and gathering all of it."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r._support.locking import locked
from sae_lens_c2r._support.writing import write_json, write_text
from sae_lens_c2r.evaluation.catalog import WEIGHTS
from sae_lens_c2r.evaluation.options import Options, checked_options
from sae_lens_c2r.evaluation.processes import Processes
from sae_lens_c2r.evaluation.report import (
    REPORT_FILE,
    EvaluationReport,
    gather,
    weights_metrics,
)
from sae_lens_c2r.evaluation.results import (
    LOG,
    RESULT,
    is_answered,
    read_metrics,
    write_result,
)
from sae_lens_c2r.evaluation.table import markdown_table
from sae_lens_c2r.evaluation.tasks import Task, model_tasks, weights_task
from sae_lens_c2r.inspection.measures import inspect_sae
from sae_lens_c2r.saes.sae_ref import SAERef

TABLE = "evaluation.md"
_LOCK, _WORKING = ".lock", ".working-"
_COPIED = "artifacts"  # what SAEBench writes into as well


def evaluate(
    sources: Sequence[SAERef],
    options: Options,
    *,
    on_error: Callable[[str], None],
    tell: Callable[[str], None] = lambda _: None,
) -> EvaluationReport:
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
    if not sources:
        raise UserError("There should be an SAE to evaluate.")
    options = checked_options(options)
    options.out.mkdir(parents=True, exist_ok=True)
    in_use = f"`out` should not be in use. Another process writes to {options.out}."
    with locked(options.out / _LOCK, otherwise=in_use):
        try:
            tasks = _plan_all(sources, options, on_error)
            todo = [task for task in tasks if not is_answered(task.folder, task.about.asked)]
            if len(todo) < len(tasks):
                tell(f"{len(tasks) - len(todo)} of {len(tasks)} evaluations were done before.")
            _run_all(todo, options, on_error=on_error, tell=tell)
        finally:
            gathered = gather(options.out)
            write_json(options.out / REPORT_FILE, gathered.model_dump(mode="json"))
            write_text(options.out / TABLE, markdown_table(gathered))
    return gathered


def _plan_all(
    sources: Sequence[SAERef], options: Options, on_error: Callable[[str], None]
) -> list[Task]:
    tasks: list[Task] = []
    seen: set[Any] = set()
    for source in sources:
        if source.place in seen:
            continue
        seen.add(source.place)
        try:
            tasks += _plan(source, options, on_error)
        except UserError as error:
            on_error(str(error))
        except Exception as error:  # a config can hold anything
            on_error(f"{source.name}: {type(error).__name__}: {one_line(error)}")
    return tasks


def _plan(source: SAERef, options: Options, on_error: Callable[[str], None]) -> list[Task]:
    """What is to be run of an SAE, beside what its weights say, which is measured here."""
    sae = source.load_for_inference(options.device)
    of_weights = weights_task(source, sae, options)
    if not is_answered(of_weights.folder, of_weights.about.asked):
        metrics = weights_metrics(inspect_sae(sae, source.name))
        result = {"eval_type_id": WEIGHTS, "eval_result_metrics": metrics}
        write_result(of_weights.folder, of_weights.about, result)
    return model_tasks(of_weights, sae, options, on_error=on_error)


def _run_all(
    tasks: Sequence[Task],
    options: Options,
    *,
    on_error: Callable[[str], None],
    tell: Callable[[str], None],
) -> None:
    processes = Processes(at_once=options.at_once, hours=options.hours)
    failures: dict[Path, str] = {}
    ended = 0

    def run(task: Task) -> None:
        tell(f"{task.title}: begun. Its log is {task.folder / LOG}")
        try:
            reason = _run(task, options, processes)
        except Exception as error:  # a full disk, a folder that is gone
            reason = f"{type(error).__name__}: {one_line(error)}."
        if reason is not None:
            failures[task.folder] = reason

    def done(task: Task) -> None:
        nonlocal ended
        ended += 1
        if task.folder in failures:
            on_error(f"{task.title}: {failures[task.folder]} Its log: {task.folder / LOG}")
            tell(f"{task.title}: failed. {ended} of {len(tasks)}")
            return
        _, missing = read_metrics(task.folder / RESULT, task.about.asked.evaluation)
        without = f" Not finite: {', '.join(missing)}." if missing else ""
        tell(f"{task.title}: done. {ended} of {len(tasks)}.{without}")

    processes.run_all(tasks, run, done)


def _run(task: Task, options: Options, processes: Processes) -> str | None:
    """Run an evaluation, and put its result into place; what went wrong, in one line."""
    with _working_folder(task.folder) as working:
        inside = working / "inside"
        inside.mkdir()
        if options.data is not None:
            _link(options.data.resolve(), inside, leave_out=options.out.resolve())
        task.write(working / "task.json")
        begun = time.monotonic()
        reason = processes.run_worker(
            working / "task.json",
            modules=working / "modules",
            folder=inside,
            log=task.folder / LOG,
        )
        if reason is not None:
            return reason
        try:
            read_metrics(working / RESULT, task.about.asked.evaluation)
        except UserError as error:
            return str(error)
        seconds = round(time.monotonic() - begun, 1)
        about = task.about.model_copy(update={"seconds": seconds})
        write_result(task.folder, about, working / RESULT)
        return None


@contextmanager
def _working_folder(folder: Path) -> Iterator[Path]:
    """A new folder in another one, and nothing of earlier ones, which a killed process left."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f"{_WORKING}*"):
        shutil.rmtree(left, ignore_errors=True)
    working = Path(mkdtemp(prefix=_WORKING, dir=folder)).resolve()
    try:
        yield working
    finally:
        shutil.rmtree(working, ignore_errors=True)


def _link(data: Path, folder: Path, *, leave_out: Path) -> None:
    """Links to all files, in folders of their own, and copies of what is written into."""

    def left_out(inside: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(inside, name) == leave_out]

    for entry in data.iterdir():
        if entry == leave_out:
            continue
        if entry.is_dir():
            copy = shutil.copy2 if entry.name == _COPIED else os.symlink
            shutil.copytree(entry, folder / entry.name, copy_function=copy, ignore=left_out)
        else:
            (folder / entry.name).symlink_to(entry)
