"""The folder beside the SAEs that is there while there is something to resume."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sae_lens_c2r._support.locking import locked
from sae_lens_c2r.training.finished import check_places, run_there

WORK = ".training"  # in the folder of the SAEs
LOCK, TRACEBACK = "lock", "traceback.txt"


def check_out(sae_ids: Iterable[str], out: Path, *, resume: bool = False) -> None:
    """Raise what `train` would raise of its folder, before anything is done for it.

    Args:
        sae_ids: The SAEs that are to lie there.
        out: As of `train`.
        resume: As of `train`.

    Raises:
        UserError: If something else lies there, or a run that is not to be resumed.
        OSError: If it cannot be written into.
    """
    check_places(sae_ids, out)
    with locked_out(out):
        run_there(out, out / WORK, lambda _: None, resume=resume)
    (out / WORK / LOCK).unlink(missing_ok=True)
    remove_if_empty(out / WORK)


@contextmanager
def locked_out(out: Path) -> Iterator[None]:
    """While it lasts, no other process trains into a folder, or is told that this one does."""
    (out / WORK).mkdir(parents=True, exist_ok=True)
    in_use = f"`out` should be a folder that no other process trains into. Found {out}."
    with locked(out / WORK / LOCK, otherwise=in_use):
        yield


def clean(work: Path) -> None:
    """Remove what is left when all is finished."""
    for name in (LOCK, TRACEBACK):
        (work / name).unlink(missing_ok=True)


def remove_if_empty(work: Path) -> None:
    """Remove the folder, unless there is something of somebody else's in it."""
    with suppress(OSError):
        work.rmdir()
