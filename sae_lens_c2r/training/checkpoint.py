"""Checkpoints on disk: each is whole under its final name, or has no final name."""

import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from huggingface_hub.utils.sha import sha_fileobj

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import (
    PARTIAL,
    begin_folder,
    disk_errors,
    finish_folder,
    sync,
)
from sae_lens_c2r.training.distributed import (
    all_gather,
    is_main_process,
    on_all_ranks,
    on_main_process,
)

KEPT = 2
MANIFEST = "manifest.json"
Fill = Callable[[Path], Iterable[Path]]
_FINAL, _DAMAGED = "step-", "damaged-"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files are as they were written, with what its writer said of it."""

    folder: Path
    step: int
    about: dict[str, Any]


class DamagedError(Exception):
    """A checkpoint that is not as it was written: its text says in what."""


class Checkpoints:
    """The checkpoints of one training. All ranks write one together; the rest is for rank 0."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, step: int, about: dict[str, Any], fill: Fill) -> Path:
        """Add a checkpoint, of which `fill` writes this rank's part; remove those too old."""
        final = self._folder / f"{_FINAL}{step:09d}"
        partial = on_main_process(lambda: begin_folder(self._folder))
        try:
            parts = all_gather(on_all_ranks(lambda: _written(partial, final, fill)))
            files = {name: digest for part in parts for name, digest in part.items()}
            content = {"step": step, "about": about, "files": dict(sorted(files.items()))}
            on_main_process(lambda: self._finish(partial, final, content))
        except BaseException:
            if is_main_process():
                shutil.rmtree(partial, ignore_errors=True)
            raise
        return final

    def _finish(self, partial: Path, final: Path, content: dict[str, Any]) -> None:
        manifest = {"content": content, "sha256": _digest_of(content)}
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        finish_folder(partial, final)
        for folder in self._named(_FINAL)[:-KEPT]:
            self._remove(folder)

    def newest(self, *, on_damage: Callable[[str], None]) -> Checkpoint | None:
        """The newest that is not damaged, if any was begun. Damaged ones get another name."""
        for folder in reversed(self._named(_FINAL)):
            try:
                return read_checkpoint(folder)
            except DamagedError as damage:
                aside = Path(mkdtemp(prefix=f"{_DAMAGED}{folder.name}-", dir=self._folder))
                os.replace(folder, aside)
                on_damage(f"{folder} is damaged ({damage}). It is {aside.name} now.")
        if self._named(_DAMAGED):
            raise UserError(
                f"No checkpoint in {self._folder} is whole. Delete it to begin anew."
            )
        return None

    def remove_all(self) -> None:
        """Remove the checkpoints, damaged ones too, and what was never finished."""
        for folder in self._named(_FINAL) + self._named(_DAMAGED):
            self._remove(folder)
        self.remove_partial()

    def remove_partial(self) -> None:
        """Remove what was being written when a process died."""
        for partial in self._named(PARTIAL):
            shutil.rmtree(partial)

    def _named(self, prefix: str) -> list[Path]:
        return sorted(self._folder.glob(f"{prefix}*"))

    def _remove(self, folder: Path) -> None:
        # By a rename first: what is half removed should not look like a checkpoint.
        going = Path(mkdtemp(prefix=PARTIAL, dir=self._folder))
        os.replace(folder, going)
        shutil.rmtree(going)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint; a DamagedError unless all of its files are what was written."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        content = manifest["content"]
        whole = manifest["sha256"] == _digest_of(content)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{MANIFEST} cannot be read ({error})") from None
    if not whole:
        raise DamagedError(f"{MANIFEST} is not what was written")
    for name, digest in content["files"].items():
        path = folder / name
        if not path.is_file():
            raise DamagedError(f"{name} is missing")
        if _digest(path) != digest:
            raise DamagedError(f"{name} is not what was written")
    return Checkpoint(folder, content["step"], content["about"])


def _written(folder: Path, final: Path, fill: Fill) -> dict[str, str]:
    """The files that this rank adds to a folder, on the disk, with their digests."""
    with disk_errors(final):
        written = fill(folder)
    digests = {}
    for path in (path for top in written for path in [top, *top.rglob("*")]):
        if path.is_file():
            sync(path)  # here: another machine knows nothing of what this one has yet to write
            digests[path.relative_to(folder).as_posix()] = _digest(path)
    return digests


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return sha_fileobj(file).hex()


def _digest_of(content: dict[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
