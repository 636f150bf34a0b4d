"""SAELens's `compile_sae=True`: C2R neither recompiles its steps nor changes them."""

import logging

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from tests.architectures.training import make_sae, make_trainer, noise, penalties_of
from tests.strategies import ARCHITECTURES

INTERVAL = 3


@pytest.mark.filterwarnings("ignore")  # of torch's own, about what it does not compile
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nothing_is_compiled_after_the_first_penalty(
    architecture: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="torch._dynamo")
    torch._dynamo.reset()
    *_, penalty = penalties_of(architecture)
    options = {f"{penalty}_interval": INTERVAL, f"{penalty}_warm_up_steps": 3 * INTERVAL}
    steps = 4 * INTERVAL
    compiled, eager = (make_sae(architecture, **options) for _ in range(2))
    counter = CompileCounter()
    compiled.training_forward_pass = torch.compile(
        compiled.training_forward_pass, backend=counter
    )
    trainers = [make_trainer(sae, steps, noise()) for sae in (compiled, eager)]
    frames = []
    for batch, _ in zip(noise(), range(steps), strict=False):
        found, expected = (trainer.step(batch) for trainer in trainers)
        assert found.losses.keys() == expected.losses.keys()
        for name, loss in expected.losses.items():
            torch.testing.assert_close(found.losses[name], loss, rtol=1e-3, atol=1e-6)
        for trainer in trainers:
            trainer.n_training_steps += 1
        frames.append(counter.frame_count)
    assert frames[0] > 0
    assert frames[INTERVAL + 1] == frames[-1]  # the warm-up gives step 0 a coefficient of 0
