"""Training of a plan by SAELens's trainer, one folder for every SAE."""

import json
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from sae_lens import TrainingSAE

from sae_lens_c2r._support.errors import UserError, counted, one_line
from sae_lens_c2r._support.files import write_folder
from sae_lens_c2r._support.process import stop_requests
from sae_lens_c2r.training.checkpoint import Checkpoint, Checkpoints
from sae_lens_c2r.training.configs import NEEDS_ESTIMATE
from sae_lens_c2r.training.costs import place, trained_by
from sae_lens_c2r.training.data_parallel import DataParallelGroup, group_size, own_group
from sae_lens_c2r.training.distributed import (
    all_reduce_max,
    assert_same_on_all_ranks,
    check_shared_folder,
    is_main_process,
    on_all_ranks,
    on_main_process,
    world_size,
)
from sae_lens_c2r.training.output_dir import (
    LOCK,
    TRACEBACK,
    WORK,
    locked_out,
    remove_if_empty,
    unfinished,
    unfinished_run,
)
from sae_lens_c2r.training.plan import Plan, difference
from sae_lens_c2r.training.record import RECORD, circumstances, record_of
from sae_lens_c2r.training.runners import train_together
from sae_lens_c2r.training.trainer import Job, Watch


def train(
    plan: Plan,
    out: Path,
    *,
    resume: bool = False,
    checkpoint_minutes: float = 30.0,
    log: Callable[[str], None] = print,
    watch: Watch | None = None,
) -> list[Path]:
    """Train the SAEs of a plan that are not finished yet.

    They are trained at once, each by one of torch's processes, or by a group of them that
    shares every batch; each process calls this with the same.

    Args:
        plan: The plan.
        out: Folder for the folders of the SAEs. One process at a time may train into it.
        resume: Whether to continue from the last checkpoint, if there is one.
        checkpoint_minutes: Time between two checkpoints; 0 for only when told to end.
        log: Shows the user a line.
        watch: Given the id and the trainer of each SAE before it begins.

    Returns:
        The folders of the SAEs that were trained now.

    Raises:
        KeyboardInterrupt: If the process was told to end; a checkpoint was written before.
    """
    work = out / WORK
    log = log if is_main_process() else _say_nothing
    _check_same_plan(plan, resume=resume, checkpoint_minutes=checkpoint_minutes)
    todo = on_main_process(lambda: unfinished(plan, out, log))
    if not todo and not on_main_process(work.exists):
        return []
    with _matmul_precision(plan.matmul_precision), stop_requests() as stop, ExitStack() as lock:
        on_main_process(lambda: lock.enter_context(locked_out(out)))
        check_shared_folder(work)
        # Another process may have finished some meanwhile.
        todo = on_main_process(lambda: unfinished(plan, out, _say_nothing))
        group = own_group(group_size(plan, world_size()))
        job = Job(
            Checkpoints(work),
            stop,
            every_seconds=60 * checkpoint_minutes,
            log=log,
            watch=watch,
            scaled=list(plan.starts),
            k_anneal_steps=plan.k_anneal_steps,
            process_group=group.process_group,
        )
        on_main_process(job.checkpoints.remove_partial)
        resumed = on_main_process(lambda: _checkpoint_of(plan, out, todo, log, resume=resume))
        folders = _train_in_turn(plan, out, _in_turn(plan, todo, resumed), resumed, job, group)
        if is_main_process():
            for name in (LOCK, TRACEBACK):
                (work / name).unlink(missing_ok=True)
    remove_if_empty(work)
    return folders


def _say_nothing(_: str) -> None:
    pass


def _check_same_plan(plan: Plan, **options: Any) -> None:
    """Raise a UserError unless all ranks are to do the same, and there are not too many."""
    on_main_process(lambda: group_size(plan, world_size()))
    here = circumstances(plan.device)
    assert_same_on_all_ranks(
        {
            **plan.fingerprint(list(plan.saes)),
            "order": list(plan.saes),
            "options": options,
            "device": plan.device,
            **{name: here[name] for name in ("python", "versions")},
        }
    )


@contextmanager
def _matmul_precision(name: str | None) -> Iterator[None]:
    """Have torch multiply float32 matrices as exactly as one of its names says."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name or before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _checkpoint_of(
    plan: Plan, out: Path, todo: list[str], log: Callable[[str], None], *, resume: bool
) -> Checkpoint | None:
    """The checkpoint to continue from, if any; a UserError if it is of another plan."""
    checkpoint = unfinished_run(out, log, resume=resume)
    if checkpoint is None:
        return None
    held = checkpoint.about["settings"]
    for sae_id in held["saes"]:
        if sae_id not in todo:
            raise UserError(f"The plan should include {sae_id}, which is in the checkpoint.")
    differs = difference(held, plan.fingerprint(list(held["saes"])))
    if differs is not None:
        raise UserError(f"The plan should be that of {checkpoint.folder}. {differs}")
    differs = difference(checkpoint.about["circumstances"], circumstances(plan.device))
    if differs is not None:
        log(f"Results may differ from those of an untouched run. {differs}")
    return checkpoint


def _in_turn(plan: Plan, todo: list[str], resumed: Checkpoint | None) -> list[list[str]]:
    """The SAEs in groups, each to be trained at once: first what a checkpoint holds."""
    begun = list(resumed.about["settings"]["saes"]) if resumed else []
    # SAELens takes the batches that it estimates from out of the shared stream.
    plain: list[str] = []
    estimated: list[str] = []
    for sae_id in (sae_id for sae_id in todo if sae_id not in begun):
        needs_estimate = plan.saes[sae_id].normalize_activations in NEEDS_ESTIMATE
        (estimated if needs_estimate else plain).append(sae_id)
    begun = [sae_id for sae_id in todo if sae_id in begun]
    return [group for group in (begun, plain, estimated) if group]


def _train_in_turn(
    plan: Plan,
    out: Path,
    groups: list[list[str]],
    resumed: Checkpoint | None,
    job: Job,
    parallel: DataParallelGroup,
) -> list[Path]:
    """Train groups of SAEs one after the other; the first one from a checkpoint, if any."""
    folders: list[Path] = []
    start, steps_done, n_saes = time.monotonic(), 0, len(plan.saes)
    for group in groups:
        if steps_done:
            n_left = sum(map(len, groups)) - len(folders)
            per_step = (time.monotonic() - start) / steps_done
            job.log(
                f"{n_saes - n_left} of {counted(n_saes, 'SAE')} trained; about "
                f"{counted(per_step * plan.steps * n_left / 60, 'minute')} to go."
            )
        if resumed is not None:
            job.log(f"From step {resumed.step:,} of {plan.steps:,}.")
        if all_reduce_max(job.stop.received):
            raise KeyboardInterrupt
        folders += _train_group(plan, out, group, replace(job, resumed=resumed), parallel)
        steps_done += plan.steps - (resumed.step if resumed else 0)
        resumed = None
    return folders


def _train_group(
    plan: Plan, out: Path, group: list[str], job: Job, parallel: DataParallelGroup
) -> list[Path]:
    """Train SAEs in one run of SAELens, and save them."""
    before = job.resumed.about["processes_per_batch"] if job.resumed else 1
    n_processes = max(parallel.size, before)
    shares = place({sae_id: plan.saes[sae_id] for sae_id in group}, parallel.count)
    own = shares[parallel.number] if parallel.is_first else []
    about = {
        "settings": plan.fingerprint(group),
        "circumstances": circumstances(plan.device),
        "processes_per_batch": n_processes,
    }
    job = replace(job, about=about, saved=own)
    try:
        saes, evaluations = train_together(plan, trained_by(shares, parallel.number), job)
    except (UserError, OSError):
        raise
    except Exception as error:  # SAELens, torch and transformers raise many kinds
        path = out / WORK / TRACEBACK
        path.write_text(traceback.format_exc(), encoding="utf-8")
        raise UserError(
            f"SAELens failed: {type(error).__name__}: {one_line(error)} ({path} has the "
            "traceback)"
        ) from error
    seconds = job.seconds

    def save() -> None:
        for sae_id in own:
            record = record_of(
                plan,
                sae_id,
                together=group,
                processes_per_batch=n_processes,
                seconds=seconds,
                evaluation=evaluations.get(sae_id),
            )
            _save(saes[sae_id], record.model_dump(), out / sae_id, beside=out / WORK)

    on_all_ranks(save)
    on_main_process(job.checkpoints.remove_all)
    job.stop.deferrable = False
    return [out / sae_id for sae_id in group]


def _save(
    sae: TrainingSAE[Any], record: Mapping[str, Any], folder: Path, *, beside: Path
) -> None:
    def fill(partial: Path) -> None:
        sae.save_inference_model(partial)
        # Not by `write_json`: settings may be infinite.
        text = json.dumps(record, indent=1)
        (partial / RECORD).write_text(f"{text}\n", encoding="utf-8")

    write_folder(folder, fill, beside=beside)
