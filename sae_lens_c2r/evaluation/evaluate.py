"""Evaluating SAEs: what is there already, what remains to be run, and gathering all of it."""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from sae_lens_c2r._support.errors import UserError, error_of, with_advice
from sae_lens_c2r._support.files import locked, write_json, write_text
from sae_lens_c2r.evaluation.report import (
    ABOUT,
    LOG,
    PROBES,
    RESULT,
    EvaluationReport,
    read_metrics,
    write_report,
)
from sae_lens_c2r.evaluation.settings import Options
from sae_lens_c2r.evaluation.tasks import Task, tasks_of
from sae_lens_c2r.evaluation.worker import INSIDE, TASK, run_worker
from sae_lens_c2r.inspection.measures import measure
from sae_lens_c2r.saes.record import WEIGHTS, as_document
from sae_lens_c2r.saes.sae_ref import SAERef

Say = Callable[[str], None]
OnError = Callable[[UserError], None]
_LOCK, _WORKING = ".lock", ".working-"
_COPIED = "artifacts"  # what SAEBench writes into as well


def evaluate(
    sources: Sequence[SAERef],
    options: Options,
    *,
    on_error: OnError,
    tell: Say = lambda _: None,
) -> EvaluationReport:
    """Run what is missing, telling of what fails, and gather all into `evaluation.json`."""
    if not sources:
        raise UserError("There should be an SAE to evaluate.")
    options.out.mkdir(parents=True, exist_ok=True)
    another = f"Another process writes to {options.out}."
    in_use = UserError("out", "not be in use", more=another)
    with locked(options.out / _LOCK, otherwise=in_use):
        shutil.rmtree(options.out / PROBES, ignore_errors=True)  # of a command that was killed
        try:
            tasks: list[Task] = []
            for source in {source.place: source for source in sources}.values():
                try:
                    tasks += _plan(source, options, on_error)
                except UserError as error:
                    on_error(error)
                except Exception as error:  # a config can hold anything
                    on_error(error_of(source.name, error))
            _run_all(tasks, options, on_error=on_error, tell=tell)
            shutil.rmtree(options.out / PROBES, ignore_errors=True)
        finally:
            report = write_report(options.out)
    return report


def _plan(source: SAERef, options: Options, on_error: OnError) -> list[Task]:
    """The evaluations of an SAE beside that of its weights, which are measured here."""
    sae = source.load_for_inference(options.device)
    of_weights, *tasks = tasks_of(source, sae, options, on_error=on_error)
    if not of_weights.is_answered:
        metrics = measure(sae, source.name).numbers
        of_weights.folder.mkdir(parents=True, exist_ok=True)
        result = {"eval_type_id": WEIGHTS, "eval_result_metrics": metrics}
        write_json(of_weights.folder / RESULT, result)
        _keep(of_weights, of_weights.folder / RESULT, seconds=0.0)
    return tasks


def _run_all(tasks: Sequence[Task], options: Options, *, on_error: OnError, tell: Say) -> None:
    """Run those that are missing, so many at a time."""
    todo = [task for task in tasks if not task.is_answered]
    if len(todo) < len(tasks):
        tell(f"{len(tasks) - len(todo)} of {len(tasks)} evaluations were done before.")
    stop, pool, ended = Event(), ThreadPoolExecutor(options.jobs), count(1)

    def run(task: Task) -> None:
        tell(f"{task.title}: started. Log: {task.folder / LOG}")
        try:
            missing = _run(task, options, stop)
        except Exception as error:  # a full disk, a folder that is gone
            if not stop.is_set():
                log = f"Log: {task.folder / LOG}"
                on_error(with_advice(error_of(task.title, error), log))
                tell(f"{task.title}: failed. {next(ended)} of {len(todo)}")
        else:
            without = f" Not finite: {', '.join(missing)}." if missing else ""
            tell(f"{task.title}: done. {next(ended)} of {len(todo)}.{without}")

    try:
        list(pool.map(run, todo))
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _run(task: Task, options: Options, stop: Event) -> list[str]:
    """Run an evaluation, and keep its result; the keys of what is not finite in it."""
    begun = time.monotonic()
    task.folder.mkdir(parents=True, exist_ok=True)
    for left in task.folder.glob(f"{_WORKING}*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(
        prefix=_WORKING, dir=task.folder.resolve(), ignore_cleanup_errors=True
    ) as folder:
        working = Path(folder)
        (working / INSIDE).mkdir()
        (working / PROBES).symlink_to((options.out / PROBES).resolve())
        if options.data is not None:
            _link(options.data, working / INSIDE, leave_out=options.out.resolve())
        write_text(working / TASK, task.model_dump_json())
        run_worker(working, log=task.folder / LOG, hours=options.hours, stop=stop)
        return _keep(task, working / RESULT, seconds=round(time.monotonic() - begun, 1))


def _keep(task: Task, result: Path, *, seconds: float) -> list[str]:
    """Put a result into its folder, and remove earlier results of the same evaluation."""
    metrics, missing = read_metrics(result, task.name)
    os.replace(result, task.folder / RESULT)
    source = f"{task.home.name}/{task.folder.name}/{RESULT}"
    answer = {"source": source, "seconds": seconds, "metrics": metrics, "missing": missing}
    evaluation = task.asked.model_copy(update=answer)
    about = task.sae.model_copy(update={"evaluations": {task.name: evaluation}})
    write_json(task.folder / ABOUT, as_document(about))
    for other in task.home.glob(f"{task.name}-*"):
        if other.name != task.folder.name:
            shutil.rmtree(other, ignore_errors=True)
    return missing


def _link(data: Path, folder: Path, *, leave_out: Path) -> None:
    """Link all files, in folders of their own, and copy those that are written into."""

    def link(file: str, target: str) -> None:
        is_written = Path(file).is_relative_to(data / _COPIED)
        (shutil.copy2 if is_written else os.symlink)(file, target)

    def left_out(inside: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(inside, name) == leave_out]

    shutil.copytree(data, folder, copy_function=link, ignore=left_out, dirs_exist_ok=True)
