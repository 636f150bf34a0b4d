"""Files: read with errors that name them, and written whole or not at all."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from filelock import FileLock, Timeout
from huggingface_hub.utils.sha import sha_fileobj
from pydantic import BaseModel
from safetensors import SafetensorError

from sae_lens_c2r._support.errors import UserError

PARTIAL = "partial-"  # begins the name of a folder that is being written
Model = TypeVar("Model", bound=BaseModel)


def check_writable(folder: Path) -> None:
    """Raise a UserError unless a folder can be written to, or made: before hours are spent."""
    places = (folder.absolute(), *folder.absolute().parents)
    existing = next(place for place in places if os.path.lexists(place))
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise UserError("out", "be a folder that can be written to", existing)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; a UserError if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(path, "be JSON that can be read", more=str(error)) from None
    if not isinstance(content, dict):
        raise UserError(path, "be a JSON object", type(content).__name__)
    return content


def write_json(path: Path, content: Any) -> None:
    """Write JSON as a whole, or not at all. NaN and infinity are a ValueError."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file in UTF-8 as a whole, or not at all."""
    write_bytes(path, text.encode(errors="backslashreplace"))  # as names of old archives


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file as a whole, or not at all, whichever other process writes it too."""
    path = path.resolve()  # a link stays, and its target is written
    if path.exists() and not path.is_file():  # such as /dev/null, which nothing may replace
        raise UserError(path, "be a file")
    part = path.with_name(f".{uuid4().hex}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def write_folder(final: Path, *, beside: Path) -> Iterator[Path]:
    """Give a folder in `beside` to write to, which then gets its name: whole, or not at all."""
    partial = begin_folder(beside)
    try:
        yield partial
        for path in [*partial.rglob("*"), partial]:
            if path.is_file():  # safetensors makes what it writes the owner's alone
                path.chmod(partial.stat().st_mode & 0o666)
            sync(path)
        final.parent.mkdir(parents=True, exist_ok=True)
        os.replace(partial, final)
        sync(final.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def fill_once(folder: Path, fill: Callable[[Path], object]) -> None:
    """Have one process fill a folder, whole or not at all, while the others wait for it."""
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            with write_folder(folder, beside=folder.parent) as to:
                fill(to)


def begin_folder(beside: Path) -> Path:
    """A new folder in `beside`, whose name says that it is being written."""
    partial = beside / f"{PARTIAL}{uuid4().hex}"
    partial.mkdir(parents=True)
    return partial


@contextmanager
def disk_errors(final: Path) -> Iterator[None]:
    """Raise a writer's failure as an OSError, after which training goes on without the file."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        # Writers raise RuntimeError itself; its subclasses tell of a device or of memory.
        if isinstance(error, RuntimeError) and type(error) is not RuntimeError:
            raise
        why = getattr(error, "strerror", None) or error
        raise OSError(f"{final} cannot be written. {why}.") from error


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return sha_fileobj(file).hex()


def sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some file systems cannot say when, as those of shared folders
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, *, otherwise: UserError) -> Iterator[None]:
    """Hold the lock of a file; raise `otherwise` if another process does."""
    try:
        lock = FileLock(path).acquire(timeout=0)
    except Timeout:
        raise otherwise from None
    with lock:
        yield
