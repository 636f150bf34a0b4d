"""The folder of the SAEs: the finished ones, and the checkpoints of the others.

Each checkpoint is whole under its final name, or has no final name.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from sae_lens_c2r._support import files
from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.releases.configs import check_kind_of_device
from sae_lens_c2r.saes.hashes import digest_of
from sae_lens_c2r.saes.record import RECORD, read_record
from sae_lens_c2r.training import distributed
from sae_lens_c2r.training.stream import changed_text

WORK = ".training"  # in the folder of the SAEs, while there is something to resume
LOCK, TRACEBACK, MANIFEST = "lock", "traceback.txt", "manifest.json"
KEPT = 2  # checkpoints
Fill = Callable[[Path], Iterable[Path]]
_FINAL, _DAMAGED = "step-", "damaged-"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint with its files as they were written, and what its writer said about it."""

    folder: Path
    step: int
    about: dict[str, Any]


class DamagedError(Exception):
    """A checkpoint that is not as it was written; the text says why."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one training. All ranks write one together; the rest is for rank 0."""

    folder: Path
    look_only: bool = False  # as a dry run does

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
        """The newest that is not damaged, if any was begun. Damaged ones get another name."""
        begun = self._named(_FINAL) + self._named(_DAMAGED)
        for folder in reversed(self._named(_FINAL)):
            try:
                # A dry run should not take the minutes that hashing gigabytes does.
                return read_checkpoint(folder, hashes=not self.look_only)
            except DamagedError as damage:
                told = f"{folder} is damaged ({damage})."
                if not self.look_only:
                    aside = Path(mkdtemp(prefix=f"{_DAMAGED}{folder.name}-", dir=self.folder))
                    os.replace(folder, aside)
                    told += f" It is now called {aside.name}."
                on_damage(told)
        if begun:
            raise UserError(
                f"{self.folder} has no intact checkpoint. Move it away to start again."
            )
        return None

    def remove_all(self) -> None:
        """Remove the checkpoints, damaged ones too, and what was never finished."""
        for folder in self._named(_FINAL) + self._named(_DAMAGED):
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


def read_checkpoint(folder: Path, *, hashes: bool = True) -> Checkpoint:
    """Read a checkpoint; a DamagedError unless its files are there, and what was written."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        content = manifest["content"]
        whole = manifest["sha256"] == digest_of(content)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{MANIFEST} cannot be read ({error})") from None
    if not whole:
        raise DamagedError(f"{MANIFEST} is not what was written")
    for name, digest in content["files"].items():
        path = folder / name
        if not path.is_file():
            raise DamagedError(f"{name} is missing")
        if hashes and files.sha256_of(path) != digest:
            raise DamagedError(f"{name} is not what was written")
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
        if not is_finished(out, sae_id):  # a link may lead to a place that is read-only
            files.check_writable(folder.parent)


def settings_of(settings: dict[str, Any], sae_ids: Iterable[str]) -> dict[str, Any]:
    """The part of a plan's fingerprint that is of some of its SAEs."""
    return {**settings, "saes": {sae_id: settings["saes"][sae_id] for sae_id in sae_ids}}


def difference(held: dict[str, Any], planned: dict[str, Any], key: str = "") -> str | None:
    """A sentence on the first value in which two fingerprints differ; `None` if none does."""
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
    """A sentence on how a training and a plan differ; of versions alone it is a line of log."""
    theirs, ours = held.get("defaults", {}), planned["defaults"]
    before, now = _fields(held, ours, theirs), _fields(planned, theirs, ours)
    section = "synthetic_model" if "config" in planned["source"] else "language_model"
    # What a record without defaults has beyond ours may be its default: nothing says more.
    for key in {**now, **before} if theirs else now:
        was, value = before.get(key), now.get(key)
        shown = re.sub(r"^source\.", f"{section}.", key)  # as a release has it
        if differs := difference({shown: was}, {shown: value}):
            name = re.sub(r"^saes\..*\.", "sae.", shown)
            if key in _fields(planned, ours):
                differs += f" `--set '{name}={json.dumps(was)}'` has it as it was."
            return differs
    lacking = _fields(held).keys() ^ _fields(planned).keys()  # runners name no defaults
    told = {key for key in lacking if key.startswith("saes.")} | (before.keys() ^ now.keys())
    if told:
        names = ", ".join(f"`{name}`" for name in sorted({k.rpartition(".")[2] for k in told}))
        log(f"Trained by another version: {names}, which one of them lacks, has its default.")
    return None


def _fields(settings: dict[str, Any], *defaults: dict[str, Any]) -> dict[str, Any]:
    """The fields of settings, by dotted keys, and defaults, of which the last count."""
    source = dict(settings["source"])
    parts = {"source.config": source.pop("config", {}), "source": source}
    parts["runner"] = settings["runner"]
    kinds = {part: part for part in parts}
    for sae_id, sae in settings["saes"].items():
        parts[f"saes.{sae_id}"], kinds[f"saes.{sae_id}"] = sae, f"sae.{sae['architecture']}"
    found: dict[str, Any] = {}
    for part, values in parts.items():
        for known in (*(each.get(kinds[part], {}) for each in defaults), values):
            found |= {f"{part}.{name}": value for name, value in known.items()}
    return found


def unfinished(
    settings: dict[str, Any],
    device: str,
    text_size: int | None,
    out: Path,
    log: Callable[[str], None],
) -> list[str]:
    """The ids of the plan's unfinished SAEs; a UserError if other SAEs are in the way."""
    check_places(settings["saes"], out)
    todo = []
    for sae_id in settings["saes"]:
        if not is_finished(out, sae_id):
            todo.append(sae_id)
            continue
        record = read_record(out / sae_id)
        if record.settings is None:
            raise UserError(out / sae_id / RECORD, "have `settings`")
        held = record.settings
        source, text = held["source"], settings["source"].get("dataset")
        is_gone = record.text_size is not None and not Path(str(source.get("dataset"))).exists()
        if is_gone and record.text_size == text_size and source["dataset"] != text:
            log(f"{text} is taken for {source['dataset']}, which was moved.")
            held["source"] = {**source, "dataset": text}
        if differs := unlike(held, settings_of(settings, [sae_id]), log):
            should = f"have no other {sae_id} than the plan's"
            raise UserError("out", should, more=f"{differs} Or choose another folder.")
        if record.features is not None:
            check_kind_of_device(record.device, device)
        log(f"{sae_id} is there already.")
        if None not in (record.text_size, text_size) and record.text_size != text_size:
            log(f"Warning: its text had {record.text_size:,} bytes, and has {text_size:,} now.")
    return todo


def unfinished_run(
    out: Path, log: Callable[[str], None], *, resume: bool, look_only: bool = False
) -> Checkpoint | None:
    """The newest checkpoint in a folder of SAEs, as if it held the unfinished ones alone."""
    checkpoints = Checkpoints(out / WORK, look_only)
    checkpoint = checkpoints.newest(on_damage=log)
    if checkpoint is None:
        return None
    held = checkpoint.about["settings"]
    left = [sae_id for sae_id in held["saes"] if not is_finished(out, sae_id)]
    if not left:  # the process died before it could remove its checkpoints
        if not look_only:
            checkpoints.remove_all()
        return None
    if not resume:
        why = f"{out / WORK} has a run that stopped at step {checkpoint.step:,}"
        advice = "Or choose another folder to start again."
        raise UserError("resume", f"be given: {why}", more=advice)
    held["saes"] = {sae_id: held["saes"][sae_id] for sae_id in left}
    return checkpoint


def checkpoint_of(
    settings: dict[str, Any],
    here: dict[str, Any],
    out: Path,
    log: Callable[[str], None],
    *,
    resume: bool,
    text_size: int | None = None,  # now, unless another text is wanted
    look_only: bool = False,
) -> Checkpoint | None:
    """The checkpoint to continue from, if any; a UserError if it is of another plan."""
    checkpoint = unfinished_run(out, log, resume=resume, look_only=look_only)
    if checkpoint is None:
        return None
    about, held = checkpoint.about, checkpoint.about["settings"]
    was = about.get("text_size", about.get("stream", {}).get("text_size"))
    if was is not None:  # the rows tell a text of a disk, wherever it lies
        held["source"]["dataset"] = settings["source"]["dataset"]
    for sae_id in held["saes"]:
        if sae_id not in settings["saes"]:
            ids = ", ".join(settings["saes"])
            raise UserError(
                f"The plan should include {sae_id}, which is in the checkpoint. Found {ids}."
            )
    if differs := unlike(held, settings_of(settings, held["saes"]), log):
        raise UserError(f"The plan should match {checkpoint.folder}. {differs}")
    if None not in (was, text_size) and was != text_size:
        raise changed_text(f"{was} bytes then, {text_size} now")
    if "config" in settings["source"]:
        check_kind_of_device(about["circumstances"].get("device"), here["device"])
    if differs := difference(about["circumstances"], here):
        log(f"Results may differ from those of an uninterrupted run. {differs}")
    return checkpoint


def check_apart(out: Path, text: Path | None) -> None:
    """Raise a `UserError` for a folder in that of the text, of which SAEs would be a part."""
    if text and out.resolve().is_relative_to(text.resolve()):
        raise UserError("out", f"not lie in the folder of the text, {text}", out)


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
