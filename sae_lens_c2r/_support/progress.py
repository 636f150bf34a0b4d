"""Bars of what takes long: on a terminal, and as a few lines in a log."""

import sys
from collections.abc import Sequence
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")
_PATIENCE = 5  # seconds, before which nothing is shown
_SECONDS_IN_A_LOG = 60  # between two lines


def with_bar(items: Sequence[T], label: str) -> "tqdm[T]":
    """Items one by one, with a bar of how many are done once that takes a while."""
    between = 0.2 if sys.stderr.isatty() else _SECONDS_IN_A_LOG
    return tqdm(items, label, delay=_PATIENCE, leave=False, mininterval=between)
