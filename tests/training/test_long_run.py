"""Every architecture is continued to the bit, wherever it was stopped."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sae_lens import TrainingSAE
from torch import Tensor

from sae_lens_c2r._support.stopping import StopRequest
from sae_lens_c2r.training.checkpoint import Checkpoint, Checkpoints
from sae_lens_c2r.training.long_run import LongRun
from tests.architectures.training import BATCH, D_IN, make_sae, make_trainer
from tests.strategies import ARCHITECTURES

STEPS, WINDOW = 20, 6


def random_batches(request: StopRequest, stop_after: int | None) -> Iterator[Tensor]:
    """Batches that depend on torch's random state; the process is told to end after some."""
    n_batches = 0
    while True:
        n_batches += 1
        request.received = request.received or n_batches == stop_after
        yield torch.randn(BATCH, D_IN)


def run(
    sae: TrainingSAE[Any],
    folder: Path,
    *,
    resumed: Checkpoint | None = None,
    stop_after: int | None = None,
) -> bool:
    """Train, and say whether it came to the end."""
    request = StopRequest()
    trainer = make_trainer(
        sae,
        STEPS,
        random_batches(request, stop_after),
        dead_feature_window=3,
        feature_sampling_window=WINDOW,
        lr_warm_up_steps=4,
        lr_decay_steps=5,
    )
    long_run = LongRun(
        Checkpoints(folder), request, every_seconds=0, about={}, resumed=resumed, tell=print
    )
    long_run.attach({"sae": trainer})
    try:
        trainer.fit()
    except KeyboardInterrupt:
        return False
    return True


@pytest.mark.filterwarnings("ignore:WARNING. You have only set one matryoshka level")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_continued_it_ends_with_the_weights_of_an_untouched_run(
    architecture: str, tmp_path: Path
) -> None:
    penalty = "ort" if architecture == "ort" else "c2r"
    options = {
        "normalize_activations": "expected_average_only_in",
        f"{penalty}_interval": 2,
        f"{penalty}_chunk_size": 20,
        f"{penalty}_warm_up_steps": 9,
    }
    untouched = make_sae(architecture, **copy.deepcopy(options))
    torch.manual_seed(0)
    assert run(untouched, tmp_path / "untouched")
    n_estimate = 4  # batches that SAELens takes to estimate the norm
    for stop_at in (1, 3, WINDOW, 13):
        folder = tmp_path / str(stop_at)
        sae = make_sae(architecture, **copy.deepcopy(options))
        torch.manual_seed(0)
        assert not run(sae, folder, stop_after=n_estimate + stop_at)
        resumed = Checkpoints(folder).newest(on_damage=pytest.fail)
        assert resumed is not None
        assert resumed.step == stop_at
        sae = make_sae(architecture, seed=1, **copy.deepcopy(options))
        torch.manual_seed(1)
        assert run(sae, folder, resumed=resumed)
        for name, tensor in untouched.state_dict().items():
            assert torch.equal(sae.state_dict()[name], tensor), name
        assert sae.cfg.metadata.l0 == untouched.cfg.metadata.l0
