"""Warnings of SAELens's that are wrong where we call it, and are left out."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_WARNINGS = (
    "The training dataset contains fewer samples",  # rows of a text are compared with tokens
    "To copy construct from a tensor",  # how SAELens reads its own rows
)
_LOGGED = "override_dataset overrides"  # `training.json` says with what


@contextmanager
def no_false_alarms() -> Iterator[None]:
    """Leave out these warnings, and no other."""
    logger = logging.getLogger("sae_lens")
    logger.addFilter(_is_no_false_alarm)
    try:
        with warnings.catch_warnings():
            for message in _WARNINGS:
                warnings.filterwarnings("ignore", message, UserWarning, "sae_lens")
            yield
    finally:
        logger.removeFilter(_is_no_false_alarm)


def _is_no_false_alarm(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_LOGGED)
