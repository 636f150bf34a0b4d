"""Which SAEs of a plan are finished, and whether the others have a place."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.training.checkpoint import Checkpoint, Checkpoints
from sae_lens_c2r.training.plan import Plan
from sae_lens_c2r.training.record import RECORD, read_record
from sae_lens_c2r.training.sameness import difference, settings_of


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


def is_work_left(plan: Plan, out: Path, work: Path, tell: Callable[[str], None]) -> bool:
    """Whether there is anything to train or to tidy up.

    Args:
        plan: The plan.
        out: Where its SAEs are to lie.
        work: The folder that is there until all is done.
        tell: Shows the user a line about each SAE that is there, if all are.

    Returns:
        Whether there is.

    Raises:
        UserError: As of `check_places` and `unfinished`.
    """
    check_places(plan.saes, out)  # now, rather than after hours of training
    if work.exists() or not all(is_finished(out, sae_id) for sae_id in plan.saes):
        return True
    unfinished(plan, out, tell)
    return False


def unfinished(plan: Plan, out: Path, tell: Callable[[str], None]) -> list[str]:
    """The SAEs that are not finished; those that are have to be the plan's.

    Returns:
        Their ids.

    Raises:
        UserError: If an SAE of other settings has the id of one of the plan.
    """
    todo = [sae_id for sae_id in plan.saes if not is_finished(out, sae_id)]
    for sae_id in (sae_id for sae_id in plan.saes if sae_id not in todo):
        record = read_record(out / sae_id)
        if record is None or record.settings is None:
            raise UserError(f"{out / sae_id / RECORD} should have `settings`.")
        differs = difference(record.settings, settings_of(plan, [sae_id]))
        if differs is not None:
            raise UserError(f"`out` should have no other {sae_id} than the plan's. {differs}")
        tell(f"{sae_id} is there already.")
    return todo


def run_there(
    out: Path, work: Path, tell: Callable[[str], None], *, resume: bool
) -> Checkpoint | None:
    """The run in a folder of SAEs that is not finished.

    Args:
        out: The folder.
        work: Where its checkpoints lie.
        tell: Told of checkpoints that are damaged.
        resume: Whether it may be continued.

    Returns:
        Its newest checkpoint, as if it held the SAEs alone that are not finished; `None` if
        there is no such run.

    Raises:
        UserError: If it is not to be continued, or cannot be.
    """
    checkpoints = Checkpoints(work)
    if checkpoints.is_empty:
        return None
    checkpoint = checkpoints.newest(on_damage=tell)
    if checkpoint is None:
        raise UserError(f"No checkpoint in {work} is whole. Delete it to begin anew.")
    held = checkpoint.about["settings"]
    left = [i for i in held["saes"] if not is_finished(out, i)]
    if not left:  # the process died before it could remove its checkpoints
        checkpoints.remove_all()
        return None
    if not resume:
        raise UserError(
            f"`--resume` should be given: {work} has a run that came to step "
            f"{checkpoint.step:,}. Or delete that folder to begin anew."
        )
    held["saes"] = {sae_id: held["saes"][sae_id] for sae_id in left}
    return checkpoint
