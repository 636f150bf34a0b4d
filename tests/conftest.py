"""Settings that must stand before anything is imported, Hypothesis's profiles, devices."""

import os
from tempfile import mkdtemp

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("HF_MODULES_CACHE", mkdtemp(prefix="modules-"))  # of strangers
os.environ["WANDB_MODE"] = "disabled"
os.environ.pop("TQDM_DISABLE", None)  # tests look at the bars
os.environ.pop("COLUMNS", None)  # of xdist, whose lines would be wrapped
os.environ["OMP_NUM_THREADS"] = "1"  # two test processes on two cores; children inherit it

import gc
import signal
import sys
from collections.abc import Iterator

import jaxtyping
import pytest
import sae_lens  # noqa: F401 before jaxtyping's loader, below which nothing is read from a cache
import torch
from hypothesis import HealthCheck, Phase, settings

from tests import forkserver

# A shell lets what it starts in the background ignore Ctrl+C, and that is inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on what else the machine does.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", untimed, max_examples=30)
# For `tests.mutations`: that an example fails is enough, it need not be the smallest.
settings.register_profile(
    "fault", untimed, max_examples=30, phases=(Phase.explicit, Phase.generate)
)
settings.register_profile("ci", untimed, max_examples=50, derandomize=True, print_blob=True)
settings.register_profile("thorough", untimed, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Start one fork server for all test processes."""
    os.environ[forkserver.SHARED] = str(forkserver.folder())


def pytest_collection_finish() -> None:
    """Leave out of each garbage collection what all of the imports have made."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def unchecked_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls as users make them, who have the library's own checks and no beartype."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="module")
def forked() -> Iterator[None]:
    """Have our own code start processes of the fork server, where it starts Python."""
    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available():  # which no fork can use that comes after such a call
            patch.setattr(sys, "executable", forkserver.python())
        yield


@pytest.fixture(params=["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
def device(request: pytest.FixtureRequest) -> str:
    """Every device that this machine has."""
    return request.param
