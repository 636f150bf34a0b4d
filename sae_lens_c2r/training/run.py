"""Training of a plan by SAELens's runners, one folder for every SAE."""

import json
import os
import platform
import subprocess
import time
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from sae_lens import MultiSAETrainingRunner, TrainingSAE
from sae_lens.registry import get_sae_training_class
from sae_lens.synthetic import SyntheticSAERunner
from sae_lens.training._interruption import InterruptedException

from sae_lens_c2r.release import LanguageModel, ReleaseError, SyntheticModel
from sae_lens_c2r.training.offline import OFFLINE_DATASET, offline_source
from sae_lens_c2r.training.plan import Plan, runner_config

RECORD = "training.json"


def is_finished(out: Path, sae_id: str) -> bool:
    """Whether a folder holds a trained SAE: the record of its training is written last."""
    return (out / sae_id / RECORD).is_file()


def train(plan: Plan, out: Path) -> list[Path]:
    """Train the SAEs of a plan that are not finished yet.

    SAEs of a language model are trained at once, from one pass of the model; SAEs of known
    features in turn. Each is saved in SAELens's inference form, under its id.

    Args:
        plan: The plan.
        out: Folder for the folders of the SAEs.

    Returns:
        The folders of the SAEs that were trained now.

    Raises:
        ReleaseError: If something else lies where an SAE is to be saved.
        KeyboardInterrupt: If the process is told to stop or to end.
    """
    todo = [sae_id for sae_id in plan.saes if not is_finished(out, sae_id)]
    for sae_id in todo:  # now, rather than after hours of training
        if (out / sae_id).exists():
            raise ReleaseError(
                f"`out` should have no folder of an SAE without {RECORD}. Found {out / sae_id}."
            )
    if not todo:
        return []
    together = isinstance(plan.release.source, LanguageModel)
    folders = []
    for sae_ids in [todo] if together else [[sae_id] for sae_id in todo]:
        start = time.perf_counter()
        saes = _run(plan, sae_ids)
        seconds = time.perf_counter() - start
        for sae_id, sae in saes.items():
            record = _record(plan, sae_id, together=sae_ids, seconds=seconds)
            folders.append(_save(sae, record, out / sae_id))
    return folders


def _run(plan: Plan, sae_ids: list[str]) -> dict[str, TrainingSAE[Any]]:
    saes = {sae_id: _make(plan, sae_id) for sae_id in sae_ids}
    config: Any = runner_config(plan, sae_ids=sae_ids)
    source = plan.release.source
    try:
        if isinstance(source, SyntheticModel):
            [(sae_id, sae)] = saes.items()
            torch.manual_seed(plan.seeds[sae_id])
            return {sae_id: SyntheticSAERunner(config, override_sae=sae).run().sae}
        offline: dict[str, Any] = {}
        if source.dataset == OFFLINE_DATASET:
            config.model_name, offline["override_dataset"] = offline_source()
        runner = MultiSAETrainingRunner(config, override_saes=saes, **offline)
        torch.manual_seed(config.seed)  # SAELens draws the order of the data from torch's state
        trained = runner.run()
    except InterruptedException as error:
        raise KeyboardInterrupt from error  # SAELens makes its own of both signals
    for sae in trained.values():
        sae.cfg.metadata.model_name = source.name or source.hub_id  # not where it lies here
    return trained


def _make(plan: Plan, sae_id: str) -> TrainingSAE[Any]:
    config = plan.saes[sae_id]
    sae_class, _ = get_sae_training_class(config.architecture())
    torch.manual_seed(plan.seeds[sae_id])
    return sae_class(config)


def _record(plan: Plan, sae_id: str, *, together: list[str], seconds: float) -> dict[str, Any]:
    """What reproduces a training."""
    return {
        "release": plan.release.model_dump(mode="json"),
        "sae_id": sae_id,
        "sae": plan.saes[sae_id].to_dict(),
        "seed": plan.seeds[sae_id],
        "trained_together": together,
        "device": plan.device,
        "steps": plan.steps,
        "samples": plan.samples,
        "seconds": seconds,
        "samples_per_second": plan.samples / seconds,
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": {
            package: version(package)
            for package in ("sae-lens-c2r", "sae-lens", "torch", "transformer-lens")
        },
        "git_revision": _git_revision(),
    }


def _git_revision() -> str | None:
    """The commit of the checkout that this code runs from, if it is one."""
    root = Path(__file__).parent.parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True)
    return found.stdout.strip() or None


def _save(sae: TrainingSAE[Any], record: dict[str, Any], folder: Path) -> Path:
    """Write beside the folder's final name, then rename: it is there whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    sae.save_inference_model(unfinished)
    (unfinished / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    os.replace(unfinished, folder)
    return folder
