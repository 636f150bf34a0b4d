"""Training of a plan by SAELens's trainer, one folder for every SAE.

Each SAE is trained by one of torch's processes, or by a group of them that shares every batch.
All of them call `train` with the same arguments.
"""

import json
import platform
import subprocess
import traceback
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sae_lens import TrainingSAE

from sae_lens_c2r._support.errors import UserError, error_of
from sae_lens_c2r._support.files import write_folder
from sae_lens_c2r._support.libraries import package_versions
from sae_lens_c2r._support.process import stop_requests
from sae_lens_c2r.penalties.neighbors import has_fast_bfloat16
from sae_lens_c2r.saes.hashes import sae_hashes
from sae_lens_c2r.saes.record import RECORD, SAERecord, as_document
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training import distributed, output_dir
from sae_lens_c2r.training.data_parallel import group_size, place
from sae_lens_c2r.training.plan import Plan
from sae_lens_c2r.training.runners import train_together
from sae_lens_c2r.training.trainer import Job


def train(
    plan: Plan,
    out: Path,  # for the SAEs' folders; one training at a time
    *,
    resume: bool = False,  # from the last checkpoint, if there is one
    checkpoint_minutes: float = 30.0,  # between two; 0 for one at the end only
    dry_run: bool = False,  # do nothing, but raise where other SAEs are in the way
    log: Callable[[str], None] = print,
) -> list[Path]:
    """Train the SAEs of a plan that are not finished, and return their folders."""
    work, on_main = out / output_dir.WORK, distributed.on_main_process
    log = log if distributed.is_main_process() else lambda _: None
    here, settings = circumstances(plan.device), plan.settings()
    here["from_disk"] = plan.from_disk
    n_parts = on_main(lambda: group_size(plan, distributed.world_size()))
    options = {"resume": resume, "checkpoint_minutes": checkpoint_minutes}
    alike = {"order": list(plan.saes), "options": options, "device": plan.device}
    _check_alike({**settings, **alike, **{key: here[key] for key in ("python", "versions")}})
    unfinished = partial(output_dir.unfinished, settings, out)
    todo = on_main(lambda: unfinished(log))
    if dry_run:
        return []
    if not todo and not on_main(work.exists):
        return []
    with stop_requests() as stop, ExitStack() as stack:
        on_main(lambda: stack.enter_context(output_dir.locked_out(out)))
        distributed.check_shared_folder(work)
        # Another process may have finished some meanwhile.
        todo = on_main(lambda: unfinished(lambda _: None))
        process_group = None
        if n_parts > 1:
            process_group, _ = dist.new_subgroups(n_parts, timeout=distributed.TIMEOUT)
        job = Job(
            output_dir.Checkpoints(work),
            stop,
            every_seconds=60 * checkpoint_minutes,
            about={
                "settings": _of_saes(settings, todo),
                "circumstances": here,
                "processes_per_batch": n_parts,
            },
            log=log,
            scaled=plan.starts,
            k_anneal_steps=plan.k_anneal_steps,
            process_group=process_group,
        )
        on_main(job.checkpoints.remove_partial)
        job.resumed = on_main(
            lambda: output_dir.checkpoint_of(settings, here, todo, out, log, resume=resume)
        )
        if todo:
            _train_at_once(plan, todo, job, out)
    return [out / sae_id for sae_id in todo]


def _of_saes(settings: dict[str, Any], sae_ids: Iterable[str]) -> dict[str, Any]:
    """The part of a plan's settings that is of some of its SAEs."""
    return {**settings, "saes": {sae_id: settings["saes"][sae_id] for sae_id in sae_ids}}


def _train_at_once(plan: Plan, sae_ids: list[str], job: Job, out: Path) -> None:
    """Train SAEs in one run and save them, those of this process here."""
    n_parts = job.about["processes_per_batch"]
    if job.resumed is not None:
        job.log(f"Continuing from step {job.resumed.step:,} of {plan.steps:,}.")
        before = job.resumed.about["processes_per_batch"]
        job.about = {**job.about, "processes_per_batch": max(n_parts, before)}
    group, place_in_it = divmod(distributed.rank(), n_parts)
    shares = place({i: plan.saes[i] for i in sae_ids}, distributed.world_size() // n_parts)
    job.saved = [] if place_in_it else shares[group]
    try:
        # A process without an SAE of its own still takes part in the stream.
        saes = train_together(plan, shares[group] or shares[0][:1], job)
    except OSError:
        raise  # to which the command adds how to go on
    except Exception as error:  # SAELens, torch and transformers raise many kinds
        if isinstance(error, UserError):
            raise
        path = out / output_dir.WORK / output_dir.TRACEBACK
        path.write_text(traceback.format_exc(), encoding="utf-8")
        failure = error_of("SAELens failed", error)
        failure.more = f"{path} has the traceback."
        raise failure from error
    distributed.on_all_ranks(partial(_save, plan, job, saes, out))
    distributed.on_main_process(job.checkpoints.remove_all)


def _check_alike(own: dict[str, Any]) -> None:
    """Raise a UserError unless all ranks have the same settings."""
    first = distributed.on_main_process(lambda: own)

    def check() -> None:
        if differs := output_dir.difference(first, own):
            raise UserError(f"All ranks should have the plan and versions of rank 0. {differs}")

    distributed.on_all_ranks(check)


def circumstances(device: str) -> dict[str, Any]:
    """Versions and the machine, which may change the results of the same settings."""
    packages = ("sae-lens-c2r", "sae-lens", "torch", "transformer-lens", "transformers")
    if torch.device(device).type == "cuda":
        device = f"{device} ({torch.cuda.get_device_name(device)})"
    elif torch.device(device).type == "cpu":  # whose instructions decide the rounding
        kinds = [torch.backends.cpu.get_cpu_capability()]
        kinds += ["bfloat16"] if has_fast_bfloat16(torch.device(device)) else []
        device = f"{device} ({', '.join(kinds)})"
    return {
        "device": device,
        "python": platform.python_version(),
        "versions": package_versions(*packages, "datasets"),
        "git_revision": _git_revision(),
    }


def _git_revision() -> str | None:
    """The commit of the checkout that this code runs from, if it is one."""
    command = ["git", "--git-dir", str(Path(__file__).parents[2] / ".git"), "rev-parse", "HEAD"]
    with suppress(OSError):  # no git here
        return subprocess.run(command, capture_output=True, text=True).stdout.strip() or None
    return None


def _save(plan: Plan, job: Job, saes: dict[str, TrainingSAE[Any]], out: Path) -> None:
    """Save the SAEs that are this process's to save, each with its record."""
    seconds, settings, here = job.seconds, job.about["settings"], job.about["circumstances"]
    for sae_id in job.saved:
        record = SAERecord(
            release=plan.release.name,
            **plan.release.model_dump(include={"description", "license", "repo_id"}),
            source=settings["source"],
            sae_id=sae_id,
            started_from=plan.starts.get(sae_id),
            settings=_of_saes(settings, [sae_id]),
            trained_together=list(settings["saes"]),
            processes_per_batch=job.about["processes_per_batch"],
            steps=plan.steps,
            samples=plan.samples,
            seconds=seconds,
            samples_per_second=plan.samples / seconds,
            finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            matmul_precision=torch.get_float32_matmul_precision(),
            **here,
        )
        with write_folder(out / sae_id, beside=out / output_dir.WORK) as folder:
            saes[sae_id].save_inference_model(folder)
            weights_sha256, _ = sae_hashes(SAERef(folder=folder).load_for_inference("cpu"))
            record = record.model_copy(update={"weights_sha256": weights_sha256})
            # Not by `write_json`: settings may be infinite.
            text = json.dumps(as_document(record), indent=1)
            (folder / RECORD).write_text(f"{text}\n", encoding="utf-8")
