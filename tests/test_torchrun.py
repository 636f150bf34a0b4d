"""What a process makes of the environment that `torchrun` gives it."""

import logging
import os
import warnings
from typing import Any
from unittest.mock import patch

import pytest

from sae_lens_c2r._support.process import take_place, was_restarted


def environment(**variables: str | None) -> Any:
    """An environment of these variables alone."""
    given = {name: value for name, value in variables.items() if value is not None}
    return patch.dict(os.environ, given, clear=True)


@pytest.mark.parametrize(
    ("local", "visible", "own"),
    [
        (None, None, None),
        (None, "2,3", "2,3"),
        ("1", None, "1"),
        ("1", "2,3", "3"),
        ("2", "2,3", ""),
    ],
)
def test_each_process_has_a_gpu_of_its_own(
    local: str | None, visible: str | None, own: str | None
) -> None:
    with environment(LOCAL_RANK=local, CUDA_VISIBLE_DEVICES=visible):
        take_place()
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == own


@pytest.mark.parametrize(("rank", "heard"), [(None, True), ("0", True), ("1", False)])
def test_the_first_process_alone_is_heard(rank: str | None, heard: bool) -> None:
    with environment(RANK=rank), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        take_place()
        warnings.warn("a warning", stacklevel=1)
        assert ("TQDM_DISABLE" not in os.environ) == heard
    logs = logging.getLogger("any").isEnabledFor(logging.WARNING)
    logging.disable(logging.NOTSET)
    assert bool(caught) == logs == heard


def test_a_restart_is_known() -> None:
    for count, restarted in ((None, False), ("0", False), ("2", True)):
        with environment(TORCHELASTIC_RESTART_COUNT=count):
            assert was_restarted() == restarted
