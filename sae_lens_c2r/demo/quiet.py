"""Libraries that say nothing of what is meant to be so."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import transformers


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Leave out warnings that do not concern the demo's user: what they tell is intended.

    MiniLM has no language-model head, and the data is handed over, not named.
    """
    logger, verbosity = logging.getLogger("sae_lens"), transformers.logging.get_verbosity()
    level = logger.level
    transformers.logging.set_verbosity(logging.ERROR)
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, module="sae_lens")
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        logger.setLevel(level)
