"""The folder of the SAEs: which of them are finished, and the run that is not."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import locked
from sae_lens_c2r.training.checkpoint import Checkpoint, Checkpoints
from sae_lens_c2r.training.record import RECORD, read_record

WORK = ".training"  # in the folder of the SAEs, while there is something to resume
LOCK, TRACEBACK = "lock", "traceback.txt"


def is_finished(out: Path, sae_id: str) -> bool:
    """Whether a folder holds a trained SAE: it has no name before it is whole."""
    return (out / sae_id / RECORD).is_file()


def check_places(sae_ids: Iterable[str], out: Path) -> None:
    """Raise a `UserError` unless every SAE's folder can be made, or is there."""
    for sae_id in sae_ids:
        folder = out / sae_id
        for parent in [out, *(out / part for part in reversed(Path(sae_id).parents))]:
            if os.path.lexists(parent) and not parent.is_dir():
                raise UserError(f"`out` should have a folder where there is {parent}.")
        if os.path.lexists(folder) and not is_finished(out, sae_id):
            raise UserError(
                f"`out` should have no folder of an SAE without {RECORD}. Found {folder}."
            )


def settings_of(settings: dict[str, Any], sae_ids: Iterable[str]) -> dict[str, Any]:
    """The part of a plan's fingerprint that is of some of its SAEs."""
    return {**settings, "saes": {sae_id: settings["saes"][sae_id] for sae_id in sae_ids}}


def difference(held: dict[str, Any], planned: dict[str, Any], key: str = "") -> str | None:
    """A sentence on the first value in which two fingerprints differ; `None` if none does."""
    for name in {**planned, **held}:
        before, now = held.get(name), planned.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            sentence = difference(before, now, f"{key}{name}.")
            if sentence is not None:
                return sentence
        elif before != now:
            return f"Found `{key}{name} = {now!r}`, and {before!r} there."
    return None


def unfinished(settings: dict[str, Any], out: Path, log: Callable[[str], None]) -> list[str]:
    """The ids of the SAEs to train, if there is a place for them; the others are the plan's."""
    check_places(settings["saes"], out)
    todo = []
    for sae_id in settings["saes"]:
        if not is_finished(out, sae_id):
            todo.append(sae_id)
            continue
        record = read_record(out / sae_id)
        if record is None or record.settings is None:
            raise UserError(f"{out / sae_id / RECORD} should have `settings`.")
        differs = difference(record.settings, settings_of(settings, [sae_id]))
        if differs is not None:
            raise UserError(f"`out` should have no other {sae_id} than the plan's. {differs}")
        log(f"{sae_id} is there already.")
    return todo


def unfinished_run(out: Path, log: Callable[[str], None], *, resume: bool) -> Checkpoint | None:
    """The newest checkpoint in a folder of SAEs, as if it held the unfinished ones alone."""
    checkpoints = Checkpoints(out / WORK)
    checkpoint = checkpoints.newest(on_damage=log)
    if checkpoint is None:
        return None
    held = checkpoint.about["settings"]
    left = [sae_id for sae_id in held["saes"] if not is_finished(out, sae_id)]
    if not left:  # the process died before it could remove its checkpoints
        checkpoints.remove_all()
        return None
    if not resume:
        raise UserError(
            f"`--resume` should be given: {out / WORK} has a run that came to step "
            f"{checkpoint.step:,}. Or delete that folder to begin anew."
        )
    held["saes"] = {sae_id: held["saes"][sae_id] for sae_id in left}
    return checkpoint


def checkpoint_of(
    settings: dict[str, Any],
    here: dict[str, Any],
    out: Path,
    log: Callable[[str], None],
    *,
    resume: bool,
) -> Checkpoint | None:
    """The checkpoint to continue from, if any; a UserError if it is of another plan."""
    checkpoint = unfinished_run(out, log, resume=resume)
    if checkpoint is None:
        return None
    held = checkpoint.about["settings"]
    for sae_id in held["saes"]:
        if sae_id not in settings["saes"]:
            raise UserError(f"The plan should include {sae_id}, which is in the checkpoint.")
    differs = difference(held, settings_of(settings, held["saes"]))
    if differs is not None:
        raise UserError(f"The plan should be that of {checkpoint.folder}. {differs}")
    differs = difference(checkpoint.about["circumstances"], here)
    if differs is not None:
        log(f"Results may differ from those of an untouched run. {differs}")
    return checkpoint


def check_out(sae_ids: Iterable[str], out: Path, *, resume: bool = False) -> None:
    """Raise what `train` would raise of its folder, before anything is done for it."""
    check_places(sae_ids, out)
    with locked_out(out):
        unfinished_run(out, lambda _: None, resume=resume)
    (out / WORK / LOCK).unlink(missing_ok=True)
    remove_if_empty(out / WORK)


@contextmanager
def locked_out(out: Path) -> Iterator[None]:
    """While it lasts, no other process trains into a folder, or is told that this one does."""
    (out / WORK).mkdir(parents=True, exist_ok=True)
    in_use = f"`out` should be a folder that no other process trains into. Found {out}."
    with locked(out / WORK / LOCK, otherwise=in_use):
        yield


def remove_if_empty(work: Path) -> None:
    """Remove the folder, unless there is something of somebody else's in it."""
    with suppress(OSError):
        work.rmdir()
