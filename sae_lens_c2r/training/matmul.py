"""How exactly torch multiplies float32 matrices: `runner.matmul_precision` of a release."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sae_lens_c2r.releases.model import ReleaseError

MATMUL_PRECISION = "matmul_precision"
_NAMES = ("highest", "high", "medium")


def checked_precision(name: object) -> str | None:
    """One of torch's names, or `None`, which leaves it to torch."""
    if name is None or name in _NAMES:
        return name and str(name)
    raise ReleaseError(
        f"`runner.{MATMUL_PRECISION}` should be one of {', '.join(_NAMES)}. Found {name!r}."
    )


@contextmanager
def matmul_precision(name: str | None) -> Iterator[None]:
    """Set the precision by its name, and put back after that what it was."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name or before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
