"""Folders that one process at a time writes into."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from sae_lens_c2r._support.errors import UserError


@contextmanager
def locked(path: Path, *, otherwise: str) -> Iterator[None]:
    """Hold the lock of a file; a UserError that says `otherwise` if another process does."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(otherwise) from None
    try:
        yield
    finally:
        lock.release()
