"""Evaluations of small SAEs, in processes of the fork server."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def forked_here(forked: None) -> None:
    """Every process of an evaluation is forked."""
