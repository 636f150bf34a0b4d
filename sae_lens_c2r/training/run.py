"""Training of a plan by SAELens's runners, one folder for every SAE."""

import copy
import json
import os
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from filelock import FileLock, Timeout
from sae_lens import TrainingSAE
from sae_lens.registry import get_sae_training_class

from sae_lens_c2r._support.stopping import StopRequest, stop_requests
from sae_lens_c2r._support.writing import write_folder
from sae_lens_c2r.offline.source import OFFLINE_DATASET, offline_source
from sae_lens_c2r.releases.model import LanguageModel, ReleaseError
from sae_lens_c2r.training.checkpoint import Checkpoint, Checkpoints
from sae_lens_c2r.training.long_run import LongRun, Watch
from sae_lens_c2r.training.plan import Plan, runner_config
from sae_lens_c2r.training.record import RECORD, circumstances, record_of
from sae_lens_c2r.training.runners import LanguageModelRunner, SyntheticRunner
from sae_lens_c2r.training.settings import difference, settings_of

WORK = ".training"  # in the folder of the SAEs, while there is something to resume
LOCK, TRACEBACK = "lock", "traceback.txt"


def is_finished(out: Path, sae_id: str) -> bool:
    """Whether a folder holds a trained SAE: it has no name before it is whole."""
    return (out / sae_id / RECORD).is_file()


def train(
    plan: Plan,
    out: Path,
    *,
    resume: bool = False,
    checkpoint_minutes: float = 30.0,
    tell: Callable[[str], None] = print,
    dataset: Dataset | None = None,
    watch: Watch | None = None,
) -> list[Path]:
    """Train the SAEs of a plan that are not finished yet.

    SAEs of a language model are trained at once, from one pass of the model; SAEs of known
    features in turn. Each is saved in SAELens's inference form, under its id. Checkpoints
    lie in the folder `.training` beside them until all is finished.

    Args:
        plan: The plan.
        out: Folder for the folders of the SAEs. One process at a time may train into it.
        resume: Whether to continue from the last checkpoint, if there is one.
        checkpoint_minutes: Time between two checkpoints; 0 for none but that of a process
            that is told to end.
        tell: Shows the user a line.
        dataset: Text of a language model in place of what the release names, such as a part
            of it: a column `tokens` of rows as the model reads them.
        watch: Given the id and the trainer of each SAE before it begins, to record what
            SAELens does at its steps.

    Returns:
        The folders of the SAEs that were trained now.

    Raises:
        ReleaseError: If something else lies where an SAE is to be saved, an SAE of other
            settings does, another process trains into `out`, its checkpoint is not one of
            this plan, or SAELens fails.
        OSError: If a trained SAE cannot be written; its last checkpoint is left then.
        KeyboardInterrupt: If the process was told to end; a checkpoint was written before.
    """
    work = out / WORK
    for sae_id in plan.saes:  # now, rather than after hours of training
        _check_place(out, sae_id)
    if all(is_finished(out, sae_id) for sae_id in plan.saes) and not work.exists():
        _todo(plan, out, tell)
        return []
    work.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(work / LOCK, timeout=0), stop_requests() as request:
            todo = _todo(plan, out, tell)
            training = _Training(
                plan, out, Checkpoints(work), request, tell, dataset=dataset, watch=watch
            )
            folders = training.run(todo, resume=resume, every_seconds=60 * checkpoint_minutes)
            for name in (LOCK, TRACEBACK):
                (work / name).unlink(missing_ok=True)
    except Timeout:
        raise ReleaseError(
            f"`out` should be a folder that no other process trains into. Found {out}."
        ) from None
    with suppress(OSError):  # where there is something of somebody else's
        work.rmdir()
    return folders


def _check_place(out: Path, sae_id: str) -> None:
    """Raise unless an SAE's folder can be made, or is there."""
    folder = out / sae_id
    for parent in [out, *(out / part for part in reversed(Path(sae_id).parents))]:
        if os.path.lexists(parent) and not parent.is_dir():
            raise ReleaseError(f"`out` should have a folder where there is {parent}.")
    if os.path.lexists(folder) and not is_finished(out, sae_id):
        raise ReleaseError(
            f"`out` should have no folder of an SAE without {RECORD}. Found {folder}."
        )


def _todo(plan: Plan, out: Path, tell: Callable[[str], None]) -> list[str]:
    """The SAEs that are not finished; those that are have to be the plan's."""
    todo = [sae_id for sae_id in plan.saes if not is_finished(out, sae_id)]
    for sae_id in plan.saes:
        if sae_id in todo:
            continue
        planned = settings_of(plan, [sae_id])
        try:
            record = json.loads((out / sae_id / RECORD).read_text(encoding="utf-8"))
            found = record["settings"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ReleaseError(f"{out / sae_id / RECORD} cannot be read. {error}") from None
        differs = difference(found, planned)
        if differs is not None:
            raise ReleaseError(
                f"`out` should have no other {sae_id} than the plan's. {differs}"
            )
        tell(f"{sae_id} is there already.")
    return todo


@dataclass(frozen=True)
class _Training:
    plan: Plan
    out: Path
    checkpoints: Checkpoints
    request: StopRequest
    tell: Callable[[str], None]
    dataset: Dataset | None
    watch: Watch | None

    def run(self, todo: list[str], *, resume: bool, every_seconds: float) -> list[Path]:
        """Train what is to be done: what a checkpoint holds first, then the rest."""
        self.checkpoints.remove_partial()
        checkpoint = self._checkpoint_of(todo, resume=resume)
        begun = [i for i in todo if checkpoint and i in checkpoint.about["settings"]["saes"]]
        rest = [sae_id for sae_id in todo if sae_id not in begun]
        together = isinstance(self.plan.release.source, LanguageModel)
        groups = [begun, *([rest] if together else [[sae_id] for sae_id in rest])]
        folders: list[Path] = []
        start, steps_done = time.monotonic(), 0
        for group in filter(None, groups):
            if steps_done:
                seconds_per_step = (time.monotonic() - start) / steps_done
                left = seconds_per_step * self.plan.steps * (len(todo) - len(folders))
                self.tell(
                    f"{len(self.plan.saes) - len(todo) + len(folders)} of "
                    f"{len(self.plan.saes)} SAEs trained; about {left / 60:,.0f} minutes to go."
                )
            resumed = checkpoint if group is begun else None
            if resumed:
                self.tell(f"From step {resumed.step:,} of {self.plan.steps:,}.")
            steps_done += self.plan.steps - (resumed.step if resumed else 0)
            if self.request.received:
                raise KeyboardInterrupt
            folders += self._train(group, resumed, every_seconds)
        return folders

    def _checkpoint_of(self, todo: list[str], *, resume: bool) -> Checkpoint | None:
        """The checkpoint to continue from, if there is one, and it is of this plan."""
        if self.checkpoints.is_empty:
            return None
        checkpoint = self.checkpoints.newest(on_damage=self.tell)
        folder = self.out / WORK
        if checkpoint is None:
            raise ReleaseError(f"No checkpoint in {folder} is whole. Delete it to begin anew.")
        held = checkpoint.about["settings"]
        unfinished = [i for i in held["saes"] if not is_finished(self.out, i)]
        if not unfinished:  # the process died before it could remove its checkpoints
            self.checkpoints.remove_all()
            return None
        if not resume:
            raise ReleaseError(
                f"`resume` should be given: {folder} has a run that came to step "
                f"{checkpoint.step:,}. Or delete that folder to begin anew."
            )
        for sae_id in unfinished:
            if sae_id not in todo:
                raise ReleaseError(
                    f"The plan should include {sae_id}, which is in the checkpoint."
                )
        held["saes"] = {sae_id: held["saes"][sae_id] for sae_id in unfinished}
        differs = difference(held, settings_of(self.plan, unfinished))
        if differs is not None:
            raise ReleaseError(f"The plan should be that of {checkpoint.folder}. {differs}")
        differs = difference(checkpoint.about["circumstances"], circumstances(self.plan.device))
        if differs is not None:
            self.tell(f"Results may differ from those of an untouched run. {differs}")
        return checkpoint

    def _train(
        self, group: list[str], resumed: Checkpoint | None, every_seconds: float
    ) -> list[Path]:
        """Train SAEs in one run of SAELens, and save them."""
        about = {
            "settings": settings_of(self.plan, group),
            "circumstances": circumstances(self.plan.device),
        }
        long_run = LongRun(
            self.checkpoints,
            self.request,
            every_seconds=every_seconds,
            about=about,
            resumed=resumed,
            tell=self.tell,
            watch=self.watch,
        )
        try:
            saes, evaluation = _run(self.plan, group, long_run, self.dataset)
        except (ReleaseError, OSError):
            raise
        except Exception as error:  # SAELens, torch and transformers raise many kinds
            path = self.out / WORK / TRACEBACK
            path.write_text(traceback.format_exc(), encoding="utf-8")
            reason = " ".join(str(error).split())
            raise ReleaseError(
                f"SAELens failed: {type(error).__name__}: {reason} ({path} has the traceback)"
            ) from error
        folders = []
        for sae_id, sae in saes.items():
            record = record_of(
                self.plan,
                sae_id,
                together=group,
                seconds=long_run.seconds,
                evaluation=evaluation,
                settings=settings_of(self.plan, [sae_id]),
            )
            self._save(sae, record, self.out / sae_id)
            folders.append(self.out / sae_id)
        self.checkpoints.remove_all()
        self.request.deferrable = False
        return folders

    def _save(self, sae: TrainingSAE[Any], record: dict[str, Any], folder: Path) -> None:
        def fill(partial: Path) -> None:
            sae.save_inference_model(partial)
            text = json.dumps(record, indent=1) + "\n"
            (partial / RECORD).write_text(text, encoding="utf-8")

        write_folder(folder, fill, beside=self.out / WORK)


def _run(
    plan: Plan, sae_ids: list[str], long_run: LongRun, dataset: Dataset | None
) -> tuple[dict[str, TrainingSAE[Any]], dict[str, Any] | None]:
    """Have SAELens train; with known features, evaluate too."""
    saes = {sae_id: _make(plan, sae_id) for sae_id in sae_ids}
    config: Any = runner_config(plan, sae_ids=sae_ids)
    source = plan.release.source
    if not isinstance(source, LanguageModel):
        [(sae_id, sae)] = saes.items()
        synthetic = SyntheticRunner(config, long_run, sae_id, override_sae=sae)
        torch.manual_seed(plan.seeds[sae_id])
        result = synthetic.run()
        evaluation = result.final_eval.to_dict() if result.final_eval else None
        return {sae_id: result.sae}, evaluation
    if source.dataset == OFFLINE_DATASET:
        config.model_name, dataset = offline_source(dataset)
    runner = LanguageModelRunner(config, long_run, override_saes=saes, override_dataset=dataset)
    torch.manual_seed(config.seed)  # SAELens draws the order of the data from torch's state
    trained = runner.run()
    for sae in trained.values():
        sae.cfg.metadata.model_name = source.name or source.hub_id  # not where it lies here
    return trained, None


def _make(plan: Plan, sae_id: str) -> TrainingSAE[Any]:
    config = copy.deepcopy(plan.saes[sae_id])  # SAELens changes it when it has trained
    sae_class, _ = get_sae_training_class(config.architecture())
    torch.manual_seed(plan.seeds[sae_id])
    return sae_class(config)
