"""Evaluating SAEs: what is there already, what remains to be run, and gathering all of it."""

import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event

import torch
from pydantic import TypeAdapter

from sae_lens_c2r._support.errors import UserError, counted, error_of, with_advice
from sae_lens_c2r._support.files import locked, write_bytes, write_json
from sae_lens_c2r.evaluation.report import (
    ABOUT,
    LOG,
    RESULT,
    EvaluationReport,
    check_replaceable,
    read_metrics,
    write_report,
)
from sae_lens_c2r.evaluation.settings import Options
from sae_lens_c2r.evaluation.tasks import Task, tasks_of
from sae_lens_c2r.evaluation.worker import INSIDE, TASKS, run_worker
from sae_lens_c2r.inspection.measures import measure
from sae_lens_c2r.saes.record import WEIGHTS, as_document
from sae_lens_c2r.saes.sae_ref import SAERef

Say = Callable[[str], None]
OnError = Callable[[UserError], None]
_LOCK, _WORKING = ".lock", ".working-"


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
        check_replaceable(options.out)
        for left in options.out.glob(f"{_WORKING}*"):  # by a command that was killed
            shutil.rmtree(left, ignore_errors=True)
        try:
            tasks: list[Task] = []
            for source in {source.place: source for source in sources}.values():
                try:
                    tasks += _plan(source, options, on_error)
                except UserError as error:
                    on_error(error)
                except Exception as error:  # a config can hold anything
                    on_error(error_of(source.name, error))
            torch.cuda.empty_cache()  # of measuring weights: other processes need the memory
            _run_all(tasks, options, on_error=on_error, tell=tell)
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
    """Run those that are missing, so many groups at a time."""
    todo = [task for task in tasks if not task.is_answered]
    if len(todo) < len(tasks):
        tell(f"{len(tasks) - len(todo)} of {len(tasks)} evaluations were done before.")
    groups: dict[str, list[Task]] = {}
    for task in todo:
        groups.setdefault(task.group, []).append(task)
    stop, pool = Event(), ThreadPoolExecutor(options.jobs)
    run = partial(_run_group, options=options, stop=stop, on_error=on_error, tell=tell)
    try:
        list(pool.map(run, groups.values()))
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _run_group(
    group: Sequence[Task], *, options: Options, stop: Event, on_error: OnError, tell: Say
) -> None:
    """Run an evaluation of SAEs that share all else, and another process after a failure."""
    waiting, name, n_saes = list(group), group[0].name, counted(len(group), "SAE")
    working = options.out.resolve() / f"{_WORKING}{group[0].key}-{name}"
    tell(f"{name}: started, {n_saes}. Log: {_log_of(group[0], options)}")

    def end(how: str) -> None:
        sae = waiting.pop(0).sae
        tell(f"{name}: {len(group) - len(waiting)} of {n_saes}, {sae.name}{how}.")

    while waiting and not stop.is_set():
        logs = {task.key: task.folder / LOG for task in waiting}
        try:
            for log in logs.values():
                log.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(working / INSIDE, ignore_errors=True)  # of a process that failed
            (working / INSIDE).mkdir(parents=True)
            write_bytes(working / TASKS, TypeAdapter(list[Task]).dump_json(waiting))
            with closing(run_worker(working, logs, hours=options.hours, stop=stop)) as results:
                for result, seconds in results:
                    missing = _keep(waiting[0], result, seconds=seconds)
                    end(f". Not finite: {', '.join(missing)}" if missing else "")
        except Exception as error:  # a full disk, a folder that is gone
            if not stop.is_set():
                named = error_of(waiting[0].title, error)
                on_error(with_advice(named, f"Log: {_log_of(waiting[0], options)}"))
                end(": failed")
    shutil.rmtree(working, ignore_errors=True)


def _log_of(task: Task, options: Options) -> Path:
    """A task's log, from where the command was given."""
    return options.out / task.folder.relative_to(options.out.resolve()) / LOG


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
