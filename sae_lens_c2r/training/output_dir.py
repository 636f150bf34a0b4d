"""The folder of the SAEs: the finished ones, and the checkpoints of the others.

Each checkpoint is whole under its final name, or has no final name.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from sae_lens_c2r._support import files
from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.saes.hashes import digest_of
from sae_lens_c2r.saes.record import RECORD, read_record
from sae_lens_c2r.training import distributed

WORK = ".training"  # in the folder of the SAEs, while there is something to resume
LOCK, TRACEBACK, MANIFEST = "lock", "traceback.txt", "manifest.json"
KEPT = 2  # checkpoints
Fill = Callable[[Path], Iterable[Path]]
_FINAL = "step-"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint with its files as they were written, and what its writer said about it."""

    folder: Path
    step: int
    about: dict[str, Any]


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one training. All ranks write one together; the rest is for rank 0."""

    folder: Path

    def write(self, step: int, about: dict[str, Any], fill: Fill) -> Path:
        """Add a checkpoint, of which `fill` writes this rank's part; remove those too old."""
        final = self.folder / f"{_FINAL}{step:09d}"
        with ExitStack() as stack:  # of rank 0; the others write into its folder
            whole = files.write_folder(final, beside=self.folder)
            partial = distributed.on_main_process(lambda: stack.enter_context(whole))
            own = distributed.on_all_ranks(lambda: _written(partial, final, fill))
            parts = distributed.all_gather(own)
            digests = {name: digest for part in parts for name, digest in part.items()}
            content = {"step": step, "about": about, "files": dict(sorted(digests.items()))}
            distributed.on_main_process(lambda: self._finish(partial, content, stack))
        return final

    def _finish(self, partial: Path, content: dict[str, Any], stack: ExitStack) -> None:
        manifest = {"content": content, "sha256": digest_of(content)}
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        stack.close()
        for folder in self._named(_FINAL)[:-KEPT]:
            self._remove(folder)

    def newest(self, *, on_damage: Callable[[str], None]) -> Checkpoint | None:
        """The newest whole one, if any was begun; damaged ones after it are removed."""
        damaged: list[Path] = []
        for folder in reversed(self._named(_FINAL)):
            try:
                found = read_checkpoint(folder)
            except (FileNotFoundError, ValueError, KeyError, TypeError) as damage:
                on_damage(f"{folder} is damaged: {damage}.")
                damaged.append(folder)
                continue
            for each in damaged:  # or they would count as kept ones
                self._remove(each)
            return found
        if damaged:
            raise UserError(
                f"{self.folder} has no intact checkpoint. Move it away to start again."
            )
        return None

    def remove_all(self) -> None:
        """Remove the checkpoints, and what was never finished."""
        for folder in self._named(_FINAL):
            self._remove(folder)
        self.remove_partial()

    def remove_partial(self) -> None:
        """Remove what was being written when a process died."""
        for partial in self._named(files.PARTIAL):
            shutil.rmtree(partial)

    def _named(self, prefix: str) -> list[Path]:
        return sorted(self.folder.glob(f"{prefix}*"))

    def _remove(self, folder: Path) -> None:
        # By a rename first: what is half removed should not look like a checkpoint.
        going = Path(mkdtemp(prefix=files.PARTIAL, dir=self.folder))
        os.replace(folder, going)
        shutil.rmtree(going)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint; an error unless its files are there, and what was written."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    content = manifest["content"]
    found = {MANIFEST: digest_of(content)}
    found |= {name: files.sha256_of(folder / name) for name in content["files"]}
    written = {MANIFEST: manifest["sha256"], **content["files"]}
    if found != written:
        names = ", ".join(name for name in written if found[name] != written[name])
        raise ValueError(f"{names} is not what was written")
    return Checkpoint(folder, content["step"], content["about"])


def _written(folder: Path, final: Path, fill: Fill) -> dict[str, str]:
    """The files that this rank adds to a folder, on the disk, with their digests."""
    with files.disk_errors(final):
        written = fill(folder)
    digests = {}
    for path in (path for top in written for path in [top, *top.rglob("*")]):
        if path.is_file():
            # Here: another machine knows nothing of what this one has yet to write.
            files.sync(path)
            digests[path.relative_to(folder).as_posix()] = files.sha256_of(path)
    return digests


def is_finished(out: Path, sae_id: str) -> bool:
    """Whether a folder holds a trained SAE: it has no name before it is whole."""
    return (out / sae_id / RECORD).is_file()


def check_places(sae_ids: Iterable[str], out: Path) -> None:
    """Raise a `UserError` unless every SAE's folder can be made, or is there."""
    for sae_id in sae_ids:
        folder = out / sae_id
        if os.path.lexists(folder) and not is_finished(out, sae_id):
            raise UserError("out", f"contain no SAE folder that lacks {RECORD}", folder)
        files.check_writable(folder.parent)  # or training would end in vain


def difference(held: dict[str, Any], planned: dict[str, Any], key: str = "") -> str | None:
    """A sentence on the first value in which two dictionaries differ; `None` if none does."""
    for name in {**planned, **held}:
        before, now = held.get(name), planned.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            if sentence := difference(before, now, f"{key}{name}."):
                return sentence
        elif before != now:
            return f"Found `{key}{name} = {now!r}`, and {before!r} there."
    return None


def unlike(
    held: dict[str, Any], planned: dict[str, Any], log: Callable[[str], None]
) -> str | None:
    """How a training and a plan differ in the fields that both have; others are told."""
    lacking: set[str] = set()
    shared = [i for i in planned["saes"] if i in held["saes"]]
    parts = {part: (held[part], planned[part]) for part in ("source", "runner")}
    parts |= {f"saes.{i}": (held["saes"][i], planned["saes"][i]) for i in shared}
    for part, (before, now) in parts.items():
        lacking |= before.keys() ^ now.keys()
        was, wanted = ({key: of[key] for key in before if key in now} for of in (before, now))
        if differs := difference(was, wanted, f"{part}."):
            return differs
    if lacking:
        log(f"Trained by another version. Not compared: {', '.join(sorted(lacking))}.")
    return None


def unfinished(settings: dict[str, Any], out: Path, log: Callable[[str], None]) -> list[str]:
    """The ids of the plan's unfinished SAEs; a UserError if other SAEs are in the way."""
    check_places(settings["saes"], out)
    todo = []
    for sae_id in settings["saes"]:
        if not is_finished(out, sae_id):
            todo.append(sae_id)
            continue
        record = read_record(out / sae_id)
        if record.settings is None or sae_id not in record.settings["saes"]:
            raise UserError(out / sae_id / RECORD, f"have `settings` of {sae_id}")
        if differs := unlike(record.settings, settings, log):
            should = f"have no other {sae_id} than the plan's"
            raise UserError("out", should, more=f"{differs} Or choose another folder.")
        log(f"{sae_id} is there already.")
    return todo


def checkpoint_of(
    settings: dict[str, Any],
    here: dict[str, Any],
    todo: Iterable[str],  # the unfinished SAEs of the plan
    out: Path,
    log: Callable[[str], None],
    *,
    resume: bool,
) -> Checkpoint | None:
    """The checkpoint to continue from, if any; a UserError if it is of another plan."""
    checkpoints = Checkpoints(out / WORK)
    checkpoint = checkpoints.newest(on_damage=log)
    if checkpoint is None:
        return None
    about, held = checkpoint.about, checkpoint.about["settings"]
    left = [sae_id for sae_id in held["saes"] if not is_finished(out, sae_id)]
    if not left:  # the process died before it could remove its checkpoints
        checkpoints.remove_all()
        return None
    if not resume:
        why = f"{out / WORK} has a run that stopped at step {checkpoint.step:,}"
        advice = "Or choose another folder to start again."
        raise UserError("resume", f"be given: {why}", more=advice)
    held["saes"] = {sae_id: held["saes"][sae_id] for sae_id in left}
    if set(left) != set(todo):
        raise UserError(
            f"The plan should have the SAEs of {checkpoint.folder}, {', '.join(left)}, "
            f"and no other unfinished ones. Found {', '.join(todo)}."
        )
    if differs := unlike(held, settings, log):
        raise UserError(f"The plan should match {checkpoint.folder}. {differs}")
    if differs := difference(about["circumstances"], here):
        log(f"Results may differ from those of an uninterrupted run. {differs}")
    return checkpoint


@contextmanager
def locked_out(out: Path) -> Iterator[None]:
    """Keep other processes from training into a folder; a UserError if one already does."""
    work = out / WORK
    work.mkdir(parents=True, exist_ok=True)
    in_use = UserError("out", "be a folder that no other process trains into", out)
    with files.locked(work / LOCK, otherwise=in_use):
        yield
        for name in (LOCK, TRACEBACK):
            (work / name).unlink(missing_ok=True)
    with suppress(OSError):  # there are checkpoints, or something of somebody else's
        work.rmdir()
