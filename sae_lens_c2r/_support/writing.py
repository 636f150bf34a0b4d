"""Files and folders that are there whole or not at all, whatever happens on the way."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from safetensors import SafetensorError

PARTIAL = "partial-"  # how the name of a folder begins that is being written


def write_json(path: Path, content: Any) -> None:
    """Write JSON as a whole, or not at all. NaN and infinity are a ValueError."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file in UTF-8 as a whole, or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file as a whole, or not at all."""
    path = path.resolve()  # what a link leads to is meant, and stays linked to
    if path.exists() and not path.is_file():  # a device or a pipe is not to be replaced
        path.write_bytes(content)
        return
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_folder(final: Path, fill: Callable[[Path], None], *, beside: Path) -> None:
    """Write a folder by `fill`, first under another name in `beside`: whole, or not at all."""
    beside.mkdir(parents=True, exist_ok=True)
    partial = Path(mkdtemp(prefix=PARTIAL, dir=beside))
    try:
        partial.chmod(beside.stat().st_mode)  # `mkdtemp` makes it the owner's alone
        fill(partial)
        for path in [*partial.rglob("*"), partial]:
            _sync(path)
        final.parent.mkdir(parents=True, exist_ok=True)
        os.replace(partial, final)
        _sync(final.parent)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, (RuntimeError, SafetensorError)):  # torch's and safetensors' own
            raise OSError(f"{final} cannot be written. {error}") from error
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
