"""Training of a plan by SAELens's runners, one folder for every SAE."""

import json
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sae_lens import TrainingSAE

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r._support.stopping import StopRequest, stop_requests
from sae_lens_c2r._support.words import counted
from sae_lens_c2r._support.writing import write_folder
from sae_lens_c2r.training.agreement import check_same_plan, check_shared_folder
from sae_lens_c2r.training.checkpoint import Checkpoint, Checkpoints
from sae_lens_c2r.training.finished import is_work_left, run_there, unfinished
from sae_lens_c2r.training.long_run import LongRun, Watch
from sae_lens_c2r.training.matmul import matmul_precision
from sae_lens_c2r.training.placement import place, trained_by
from sae_lens_c2r.training.plan import Plan
from sae_lens_c2r.training.plan_checks import NEEDS_ESTIMATE
from sae_lens_c2r.training.ranks import ALONE, Ranks
from sae_lens_c2r.training.record import RECORD, TrainingRecord, circumstances, record_of
from sae_lens_c2r.training.runners import train_together
from sae_lens_c2r.training.sameness import difference, settings_of
from sae_lens_c2r.training.scaled_starts import ScaledStarts
from sae_lens_c2r.training.teams import Team, own_team, team_size
from sae_lens_c2r.training.work_folder import (
    TRACEBACK,
    WORK,
    clean,
    locked_out,
    remove_if_empty,
)


def train(
    plan: Plan,
    out: Path,
    *,
    resume: bool = False,
    checkpoint_minutes: float = 30.0,
    tell: Callable[[str], None] = print,
    watch: Watch | None = None,
    ranks: Ranks = ALONE,
) -> list[Path]:
    """Train the SAEs of a plan that are not finished yet.

    They are trained at once, from one pass of the model or one stream of known features, each
    by one of the processes, or by a team of them that shares every batch. Each is saved in
    SAELens's inference form, under its id. Checkpoints lie in the folder `.training` beside
    them until all is finished.

    Args:
        plan: The plan.
        out: Folder for the folders of the SAEs. One process at a time may train into it.
        resume: Whether to continue from the last checkpoint, if there is one.
        checkpoint_minutes: Time between two checkpoints; 0 for none but that of a process
            that is told to end.
        tell: Shows the user a line.
        watch: Given the id and the trainer of each SAE before it begins, to record what
            SAELens does at its steps.
        ranks: The processes that train together, each of which calls this with the same.

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
    tell = tell if ranks.is_first else _say_nothing
    check_same_plan(plan, ranks, resume=resume, checkpoint_minutes=checkpoint_minutes)
    if ranks.on_first(lambda: not is_work_left(plan, out, work, tell)):
        return []
    precise = matmul_precision(plan.matmul_precision)
    with precise, stop_requests() as request, ExitStack() as lock:
        ranks.on_first(lambda: lock.enter_context(locked_out(out)))
        check_shared_folder(work, ranks)
        todo = ranks.on_first(lambda: unfinished(plan, out, tell))
        team = own_team(team_size(plan, ranks.size), ranks)
        training = _Training(
            plan, out, request, 60 * checkpoint_minutes, tell, watch, ranks, team
        )
        folders = training.run(todo, resume=resume)
        ranks.on_first(lambda: clean(work))
    remove_if_empty(work)
    return folders


def _processes_per_batch(checkpoint: Checkpoint | None) -> int:
    """Processes that each batch was split over before a checkpoint; the most of them."""
    return checkpoint.about.get("processes_per_batch", 1) if checkpoint else 1


def _say_nothing(_: str) -> None:
    pass


@dataclass(frozen=True)
class _Training:
    plan: Plan
    out: Path
    request: StopRequest
    every_seconds: float
    tell: Callable[[str], None]
    watch: Watch | None
    ranks: Ranks
    team: Team

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.out / WORK, self.ranks)

    def run(self, todo: list[str], *, resume: bool) -> list[Path]:
        """Train what is to be done: what a checkpoint holds first, then the rest."""
        self.ranks.on_first(self.checkpoints.remove_partial)
        checkpoint = self.ranks.on_first(lambda: self._checkpoint_of(todo, resume=resume))
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
                self._tell_progress(len(todo) - len(folders), per_step)
            resumed = checkpoint if group is begun else None
            if resumed:
                self.tell(f"From step {resumed.step:,} of {self.plan.steps:,}.")
            steps_done += self.plan.steps - (resumed.step if resumed else 0)
            if self.ranks.largest(self.request.received):
                raise KeyboardInterrupt
            folders += self._train(group, resumed)
        return folders

    def _tell_progress(self, n_left: int, seconds_per_step: float) -> None:
        minutes = seconds_per_step * self.plan.steps * n_left / 60
        n_saes = len(self.plan.saes)
        self.tell(
            f"{n_saes - n_left} of {counted(n_saes, 'SAE')} trained; about "
            f"{counted(minutes, 'minute')} to go."
        )

    def _checkpoint_of(self, todo: list[str], *, resume: bool) -> Checkpoint | None:
        """The checkpoint to continue from, if there is one, and it is of this plan."""
        checkpoint = run_there(self.out, self.out / WORK, self.tell, resume=resume)
        if checkpoint is not None:
            self._check_resumed(checkpoint, todo)
        return checkpoint

    def _check_resumed(self, checkpoint: Checkpoint, todo: list[str]) -> None:
        """Raise unless what a checkpoint holds is what is planned."""
        held = checkpoint.about["settings"]
        for sae_id in held["saes"]:
            if sae_id not in todo:
                raise UserError(
                    f"The plan should include {sae_id}, which is in the checkpoint."
                )
        differs = difference(held, settings_of(self.plan, list(held["saes"])))
        if differs is not None:
            raise UserError(f"The plan should be that of {checkpoint.folder}. {differs}")
        differs = difference(checkpoint.about["circumstances"], circumstances(self.plan.device))
        if differs is not None:
            self.tell(f"Results may differ from those of an untouched run. {differs}")

    def _train(self, group: list[str], resumed: Checkpoint | None) -> list[Path]:
        """Train SAEs in one run of SAELens, and save them."""
        n_processes = max(self.team.size, _processes_per_batch(resumed))
        about = {
            "settings": settings_of(self.plan, group),
            "circumstances": circumstances(self.plan.device),
            "processes_per_batch": n_processes,
        }
        shares = place({sae_id: self.plan.saes[sae_id] for sae_id in group}, self.team.count)
        own = shares[self.team.number] if self.team.is_first else []
        long_run = LongRun(
            self.checkpoints,
            self.request,
            every_seconds=self.every_seconds,
            about=about,
            resumed=resumed,
            tell=self.tell,
            watch=self.watch,
            ranks=self.ranks,
            saved=own,
            starts=ScaledStarts(self.plan.starts),
            batch_group=self.team.process_group,
        )
        saes, evaluations = self._run(trained_by(shares, self.team.number), long_run)
        seconds = long_run.seconds

        def save() -> None:
            for sae_id in own:
                evaluation = evaluations.get(sae_id)
                record = record_of(
                    self.plan,
                    sae_id,
                    together=group,
                    processes_per_batch=n_processes,
                    seconds=seconds,
                    evaluation=evaluation,
                )
                self._save(saes[sae_id], record, self.out / sae_id)

        self.ranks.together(save)
        self.ranks.on_first(self.checkpoints.remove_all)
        self.request.deferrable = False
        return [self.out / sae_id for sae_id in group]

    def _run(
        self, group: list[str], long_run: LongRun
    ) -> tuple[dict[str, TrainingSAE[Any]], dict[str, dict[str, Any]]]:
        try:
            return train_together(self.plan, group, long_run)
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
