"""Training of a plan by SAELens's trainer, one folder for every SAE."""

import json
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sae_lens import TrainingSAE

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r._support.stopping import StopRequest, stop_requests
from sae_lens_c2r._support.words import counted
from sae_lens_c2r._support.writing import write_folder
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
from sae_lens_c2r.training.record import RECORD, TrainingRecord, circumstances, record_of
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

    They are trained at once, from one pass of the model or one stream of known features, each
    by one of the processes, or by a group of them that shares every batch. Each is saved in
    SAELens's inference form, under its id. Checkpoints lie in the folder `.training` beside
    them until all is finished. Where torch's processes are initialized, all of them train
    together: each calls this with the same.

    Args:
        plan: The plan.
        out: Folder for the folders of the SAEs. One process at a time may train into it.
        resume: Whether to continue from the last checkpoint, if there is one.
        checkpoint_minutes: Time between two checkpoints; 0 for none but that of a process
            that is told to end.
        log: Shows the user a line.
        watch: Given the id and the trainer of each SAE before it begins, to record what
            SAELens does at its steps.

    Returns:
        The folders of the SAEs that were trained now.

    Raises:
        UserError: If something else lies where an SAE is to be saved, an SAE of other
            settings does, another process trains into `out`, its checkpoint is not one of
            this plan, or SAELens fails; or if the ranks do not agree, or one of them ends.
        OSError: If a trained SAE cannot be written; its last checkpoint is left then.
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
        training = _Training(plan, out, stop, 60 * checkpoint_minutes, log, watch, group)
        folders = training.run(todo, resume=resume)
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


@dataclass(frozen=True)
class _Training:
    plan: Plan
    out: Path
    stop: StopRequest
    every_seconds: float
    log: Callable[[str], None]
    watch: Watch | None
    group: DataParallelGroup

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.out / WORK)

    def run(self, todo: list[str], *, resume: bool) -> list[Path]:
        """Train what is to be done: what a checkpoint holds first, then the rest."""
        on_main_process(self.checkpoints.remove_partial)
        checkpoint = on_main_process(lambda: self._checkpoint_of(todo, resume=resume))
        begun = [i for i in todo if checkpoint and i in checkpoint.about["settings"]["saes"]]
        # SAELens takes the batches that it estimates from out of the shared stream.
        groups = [begun, [], []]
        for sae_id in (sae_id for sae_id in todo if sae_id not in begun):
            mode = self.plan.saes[sae_id].normalize_activations
            groups[2 if mode in NEEDS_ESTIMATE else 1].append(sae_id)
        folders: list[Path] = []
        start, steps_done = time.monotonic(), 0
        for group in filter(None, groups):
            if steps_done:
                per_step = (time.monotonic() - start) / steps_done
                self._log_progress(len(todo) - len(folders), per_step)
            resumed = checkpoint if group is begun else None
            if resumed:
                self.log(f"From step {resumed.step:,} of {self.plan.steps:,}.")
            steps_done += self.plan.steps - (resumed.step if resumed else 0)
            if all_reduce_max(self.stop.received):
                raise KeyboardInterrupt
            folders += self._train(group, resumed)
        return folders

    def _log_progress(self, n_left: int, seconds_per_step: float) -> None:
        minutes = seconds_per_step * self.plan.steps * n_left / 60
        n_saes = len(self.plan.saes)
        self.log(
            f"{n_saes - n_left} of {counted(n_saes, 'SAE')} trained; about "
            f"{counted(minutes, 'minute')} to go."
        )

    def _checkpoint_of(self, todo: list[str], *, resume: bool) -> Checkpoint | None:
        """The checkpoint to continue from, if there is one, and it is of this plan."""
        checkpoint = unfinished_run(self.out, self.log, resume=resume)
        if checkpoint is None:
            return None
        held = checkpoint.about["settings"]
        for sae_id in held["saes"]:
            if sae_id not in todo:
                raise UserError(
                    f"The plan should include {sae_id}, which is in the checkpoint."
                )
        differs = difference(held, self.plan.fingerprint(list(held["saes"])))
        if differs is not None:
            raise UserError(f"The plan should be that of {checkpoint.folder}. {differs}")
        differs = difference(checkpoint.about["circumstances"], circumstances(self.plan.device))
        if differs is not None:
            self.log(f"Results may differ from those of an untouched run. {differs}")
        return checkpoint

    def _train(self, group: list[str], resumed: Checkpoint | None) -> list[Path]:
        """Train SAEs in one run of SAELens, and save them."""
        before = resumed.about["processes_per_batch"] if resumed else 1
        n_processes = max(self.group.size, before)
        shares = place({sae_id: self.plan.saes[sae_id] for sae_id in group}, self.group.count)
        own = shares[self.group.number] if self.group.is_first else []
        job = Job(
            self.checkpoints,
            self.stop,
            every_seconds=self.every_seconds,
            about={
                "settings": self.plan.fingerprint(group),
                "circumstances": circumstances(self.plan.device),
                "processes_per_batch": n_processes,
            },
            resumed=resumed,
            saved=own,
            log=self.log,
            watch=self.watch,
            scaled=list(self.plan.starts),
            k_anneal_steps=self.plan.k_anneal_steps,
            process_group=self.group.process_group,
        )
        saes, evaluations = self._run(trained_by(shares, self.group.number), job)
        seconds = job.seconds

        def save() -> None:
            for sae_id in own:
                record = record_of(
                    self.plan,
                    sae_id,
                    together=group,
                    processes_per_batch=n_processes,
                    seconds=seconds,
                    evaluation=evaluations.get(sae_id),
                )
                self._save(saes[sae_id], record, self.out / sae_id)

        on_all_ranks(save)
        on_main_process(self.checkpoints.remove_all)
        self.stop.deferrable = False
        return [self.out / sae_id for sae_id in group]

    def _run(
        self, group: list[str], job: Job
    ) -> tuple[dict[str, TrainingSAE[Any]], dict[str, dict[str, Any]]]:
        try:
            return train_together(self.plan, group, job)
        except (UserError, OSError):
            raise
        except Exception as error:  # SAELens, torch and transformers raise many kinds
            path = self.out / WORK / TRACEBACK
            path.write_text(traceback.format_exc(), encoding="utf-8")
            raise UserError(
                f"SAELens failed: {type(error).__name__}: {one_line(error)} ({path} has the "
                "traceback)"
            ) from error

    def _save(self, sae: TrainingSAE[Any], record: TrainingRecord, folder: Path) -> None:
        def fill(partial: Path) -> None:
            sae.save_inference_model(partial)
            # Not by `write_json`: settings may be infinite.
            text = json.dumps(record.model_dump(), indent=1)
            (partial / RECORD).write_text(f"{text}\n", encoding="utf-8")

        write_folder(folder, fill, beside=self.out / WORK)
