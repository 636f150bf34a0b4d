"""Evaluating SAEs: what is asked for, what is held already, and running the rest."""

import gc
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from re import fullmatch
from typing import Any

import torch
from sae_lens import SAE

from sae_lens_c2r._support.errors import UserError, counted, error_of
from sae_lens_c2r._support.files import sha256_of
from sae_lens_c2r._support.libraries import package_versions
from sae_lens_c2r.evaluation.results import EvaluationReport, Results, Task, metrics_of
from sae_lens_c2r.evaluation.sae_bench import WORKING, run_sae_bench
from sae_lens_c2r.evaluation.sae_lens import OnText
from sae_lens_c2r.evaluation.settings import ABSORPTION, Options
from sae_lens_c2r.inspection.activations import check_reconstructs
from sae_lens_c2r.inspection.measures import measure
from sae_lens_c2r.models.loading import options_for, output_of_block
from sae_lens_c2r.models.names import ModelName
from sae_lens_c2r.models.reading import TRANSFORMERS, Reading
from sae_lens_c2r.models.text_source import TextSource
from sae_lens_c2r.saes.hashes import sae_hashes
from sae_lens_c2r.saes.record import SAE_LENS, WEIGHTS, Evaluation, SAERecord
from sae_lens_c2r.saes.sae_ref import SAERef

Say = Callable[[str], None]
OnError = Callable[[UserError], None]
_BLOCK = r"blocks\.\d+\.hook_resid_post"
_PACKAGES = (
    *("sae-lens-c2r", "sae-lens", "sae-bench"),
    *("transformer-lens", "transformers", "torch"),
)


def evaluate(
    sources: Sequence[SAERef],
    options: Options,
    *,
    on_error: OnError,
    tell: Say = lambda _: None,
) -> EvaluationReport:
    """Run what `evaluation.json` does not hold, and write each result there as it comes."""
    if not sources:
        raise UserError("There should be an SAE to evaluate.")
    with Results.locked(options.out) as results:
        for left in options.out.glob(f"{WORKING}*"):  # by a command that was killed
            shutil.rmtree(left, ignore_errors=True)
        tasks: list[Task] = []
        for source in sources:
            try:
                tasks += _plan(source, options, results, on_error)
            except UserError as error:
                on_error(error if error.of else error_of(source.name, error))
        todo = [task for task in tasks if not results.has(task.sae, task.name, task.asked)]
        if len(todo) < len(tasks):
            tell(f"{len(tasks) - len(todo)} of {len(tasks)} evaluations were done before.")
        _run(todo, results, on_error, tell)
        return results.write()


def _plan(source: SAERef, options: Options, results: Results, on_error: OnError) -> list[Task]:
    """The evaluations of an SAE in its inference form, whose weights are measured at once."""
    sae = source.load_for_inference(options.device)
    weights_sha256, config_sha256 = sae_hashes(sae)
    record = SAERecord(
        weights_sha256=weights_sha256,
        config_sha256=config_sha256,
        name=source.name,
        architecture=sae.cfg.architecture(),
        trained_as=sae.cfg.metadata.training_architecture,
        d_in=sae.cfg.d_in,
        d_sae=sae.cfg.d_sae,
        evaluations={},
    )
    by = Evaluation(device=options.device, versions=package_versions(*_PACKAGES), metrics={})
    new = {}
    if not results.has(record, WEIGHTS, by):
        numbers = measure(sae, source.name).numbers
        new[WEIGHTS] = by.model_copy(update={"metrics": numbers})
    results.keep(record, new)
    if not options.names:
        return []
    reading, tasks = _reading(sae, options), []
    place = replace(source, folder=source.folder and source.folder.resolve())
    for name in options.names:
        try:
            asked = by.model_copy(update=_asked(name, reading, options))
        except UserError as error:
            on_error(error_of(f"{name} of {source.name}", error))
        else:
            task = Task(name=name, source=place, sae=record, reading=reading, asked=asked)
            tasks.append(task)
    return tasks


def _reading(sae: SAE[Any], options: Options) -> Reading:
    """How an SAE reads text, by the model that is asked for."""
    check_reconstructs(sae)
    said = Reading.of(sae.cfg.metadata)
    model = options.model or said.model_name
    if not model or not said.hook_name:
        missing = "metadata.hook_name" if model else "model"
        raise UserError(missing, "be given, or be in the SAE's config")
    of_model = options_for(model, said.model_from_pretrained_kwargs, of=said.model_name)
    place = str(Path(model).resolve()) if ModelName(model).is_folder else model
    return said.model_copy(
        update={"model_name": place, "model_from_pretrained_kwargs": of_model}
    )


def _asked(name: str, reading: Reading, options: Options) -> dict[str, Any]:
    """Return the model, text and settings of an evaluation, as `evaluation.json` has them."""
    settings = options.settings(name, str(reading.model_name))
    asked: dict[str, Any] = {"model": reading.model_name, "settings": settings}
    if name == SAE_LENS:
        text = options.text or reading.dataset_path
        if not text:
            raise UserError("text", "be given: the SAE does not say what it was trained on")
        source = reading.text_as_trained(TextSource(text, **options.part))
        settings |= source.part
        asked |= {"text": options.text, "reading": reading.model_dump(mode="json")}
        if Path(text).is_file():  # which may change
            asked["inputs"] = {text: sha256_of(Path(text))}
    elif reading.model_class_name == TRANSFORMERS:
        output_of_block(str(reading.hook_name))  # SAEBench reads no others
    elif name == ABSORPTION and not fullmatch(_BLOCK, str(reading.hook_name)):
        should = "be like blocks.8.hook_resid_post: SAEBench's absorption reads no others"
        raise UserError("metadata.hook_name", should, reading.hook_name)
    return asked


def _run(tasks: Sequence[Task], results: Results, on_error: OnError, tell: Say) -> None:
    """Run SAELens's own evaluation here, and SAEBench's in other processes."""
    begun = time.monotonic()

    def give(task: Task, answer: Mapping[str, Any] | Exception) -> None:
        nonlocal begun
        seconds, begun = round(time.monotonic() - begun, 1), time.monotonic()
        if isinstance(answer, Exception):
            named = answer if isinstance(answer, UserError) and answer.of else None
            on_error(named or error_of(task.title, answer))
            return
        metrics, missing = metrics_of(task.name, answer)
        if not metrics:
            on_error(UserError(f"{task.title}: it gave no finite number."))
            return
        found = {"seconds": seconds, "metrics": metrics, "missing": missing}
        results.keep(task.sae, {task.name: task.asked.model_copy(update=found)})
        tell(f"{task.title}: done." + (f" Not finite: {', '.join(missing)}" * bool(missing)))

    on_text, alike = OnText(tell), lambda task: task.reading.model_dump_json()
    for task in sorted((task for task in tasks if task.name == SAE_LENS), key=alike):
        tell(f"{task.title}: started.")
        try:
            answer: Any = on_text.measure(task.load(), str(task.sae.name), task.asked)
        # A model that is not there, or memory that does not suffice, is of one SAE alone.
        except (UserError, OSError, RuntimeError) as error:
            answer = error
        give(task, answer)
    del on_text
    gc.collect()  # models refer to themselves
    torch.cuda.empty_cache()  # other processes need the memory
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        if task.name != SAE_LENS:
            shared = f"{task.name} {task.asked.settings} {task.reading.way}"
            groups.setdefault(shared, []).append(task)
    for group in groups.values():
        log = results.out / f"{group[0].name}.log"
        tell(f"{group[0].name}: started, {counted(len(group), 'SAE')}. Log: {log}")
        run_sae_bench(group, log, give=give)
