"""Training of a plan by SAELens's runners, one folder for every SAE."""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from sae_lens import TrainingSAE
from sae_lens.registry import get_sae_training_class

from sae_lens_c2r.release import LanguageModel, ReleaseError
from sae_lens_c2r.training.checkpoint import Checkpoint, Checkpoints, write_folder
from sae_lens_c2r.training.long_run import LongRun
from sae_lens_c2r.training.offline import OFFLINE_DATASET, offline_source
from sae_lens_c2r.training.plan import Plan, runner_config
from sae_lens_c2r.training.record import RECORD, record_of, versions
from sae_lens_c2r.training.runners import LanguageModelRunner, SyntheticRunner
from sae_lens_c2r.training.stopping import StopRequest, stop_requests

WORK = ".training"  # in the folder of the SAEs, while there is something to resume


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

    Returns:
        The folders of the SAEs that were trained now.

    Raises:
        ReleaseError: If something else lies where an SAE is to be saved, another process
            trains into `out`, or its checkpoint is not one of this plan.
        OSError: If a trained SAE cannot be written; its last checkpoint is left then.
        KeyboardInterrupt: If the process was told to end; a checkpoint was written before.
    """
    work = out / WORK
    todo = [sae_id for sae_id in plan.saes if not is_finished(out, sae_id)]
    for sae_id in todo:  # now, rather than after hours of training
        if (out / sae_id).exists():
            raise ReleaseError(
                f"`out` should have no folder of an SAE without {RECORD}. Found {out / sae_id}."
            )
    if not todo and not work.exists():
        return []
    work.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(work / "lock", timeout=0), stop_requests() as request:
            training = _Training(plan, out, Checkpoints(work), request, tell)
            folders = training.run(todo, resume=resume, every_seconds=60 * checkpoint_minutes)
            shutil.rmtree(work, ignore_errors=True)
    except Timeout:
        raise ReleaseError(
            f"`out` should be a folder that no other process trains into. Found {out}."
        ) from None
    return folders


@dataclass(frozen=True)
class _Training:
    plan: Plan
    out: Path
    checkpoints: Checkpoints
    request: StopRequest
    tell: Callable[[str], None]

    def run(self, todo: list[str], *, resume: bool, every_seconds: float) -> list[Path]:
        """Train what is to be done: what a checkpoint holds first, then the rest."""
        self.checkpoints.remove_partial()
        checkpoint = self._checkpoint_of(todo, resume=resume)
        begun = [i for i in todo if checkpoint and i in checkpoint.about["settings"]["saes"]]
        rest = [sae_id for sae_id in todo if sae_id not in begun]
        together = isinstance(self.plan.release.source, LanguageModel)
        groups = [begun, *([rest] if together else [[sae_id] for sae_id in rest])]
        folders: list[Path] = []
        start = time.monotonic()
        for group in filter(None, groups):
            if folders:
                self._tell_progress(len(folders), len(todo), time.monotonic() - start)
            resumed = checkpoint if group is begun else None
            if resumed:
                self.tell(f"From step {resumed.step:,} of {self.plan.steps:,}.")
            folders += self._train(group, resumed, every_seconds)
        return folders

    def _tell_progress(self, done: int, n_saes: int, seconds: float) -> None:
        left = seconds / done * (n_saes - done)
        self.tell(f"{done} of {n_saes} SAEs trained; about {left / 60:,.0f} minutes to go.")

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
        difference = _difference(held, _settings(self.plan, unfinished))
        if difference is not None:
            raise ReleaseError(f"The plan should be that of {checkpoint.folder}. {difference}")
        if (then := checkpoint.about["versions"]) != versions():
            self.tell(f"The checkpoint is of {then}: results may differ from an untouched run.")
        return checkpoint

    def _train(
        self, group: list[str], resumed: Checkpoint | None, every_seconds: float
    ) -> list[Path]:
        """Train SAEs in one run of SAELens, and save them."""
        long_run = LongRun(
            self.checkpoints,
            self.request,
            every_seconds=every_seconds,
            about={"settings": _settings(self.plan, group), "versions": versions()},
            resumed=resumed,
            tell=self.tell,
        )
        saes, evaluation = _run(self.plan, group, long_run)
        folders = []
        for sae_id, sae in saes.items():
            record = record_of(
                self.plan,
                sae_id,
                together=group,
                seconds=long_run.seconds,
                evaluation=evaluation,
            )
            self._save(sae, record, self.out / sae_id)
            folders.append(self.out / sae_id)
        self.checkpoints.remove_all()
        self.request.deferrable = False
        if self.request.received:
            raise KeyboardInterrupt
        return folders

    def _save(self, sae: TrainingSAE[Any], record: dict[str, Any], folder: Path) -> None:
        def fill(partial: Path) -> None:
            sae.save_inference_model(partial)
            text = json.dumps(record, indent=1) + "\n"
            (partial / RECORD).write_text(text, encoding="utf-8")

        write_folder(folder, fill, beside=self.out / WORK)


def _run(
    plan: Plan, sae_ids: list[str], long_run: LongRun
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
    offline: dict[str, Any] = {}
    if source.dataset == OFFLINE_DATASET:
        config.model_name, offline["override_dataset"] = offline_source()
    runner = LanguageModelRunner(config, long_run, override_saes=saes, **offline)
    torch.manual_seed(config.seed)  # SAELens draws the order of the data from torch's state
    trained = runner.run()
    for sae in trained.values():
        sae.cfg.metadata.model_name = source.name or source.hub_id  # not where it lies here
    return trained, None


def _make(plan: Plan, sae_id: str) -> TrainingSAE[Any]:
    config = plan.saes[sae_id]
    sae_class, _ = get_sae_training_class(config.architecture())
    torch.manual_seed(plan.seeds[sae_id])
    return sae_class(config)


def _settings(plan: Plan, sae_ids: list[str]) -> dict[str, Any]:
    """What a resumed run has to share with the one before it."""
    saes = {
        sae_id: {**plan.saes[sae_id].to_dict(), "seed": plan.seeds[sae_id]}
        for sae_id in sae_ids
    }
    for config in saes.values():
        del config["device"], config["metadata"]  # where it runs, and what the run adds
    source = plan.release.source.model_dump(mode="json")
    settings = {"source": source, "runner": dict(plan.runner), "saes": saes}
    of_json: dict[str, Any] = json.loads(json.dumps(settings))
    return of_json


def _difference(held: dict[str, Any], planned: dict[str, Any], key: str = "") -> str | None:
    """The first value of the plan's that is not what a checkpoint holds."""
    for name in {**planned, **held}:
        before, now = held.get(name), planned.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            found = _difference(before, now, f"{key}{name}.")
            if found is not None:
                return found
        elif before != now:
            return f"Found `{key}{name} = {now!r}`, and {before!r} there."
    return None
