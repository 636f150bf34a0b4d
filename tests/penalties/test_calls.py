"""What a penalty asks of an accelerator: few calls, few bytes, and never to be waited for.

Counted on `meta`, which needs no accelerator. The counts are the same on any machine.
"""

from typing import Any
from unittest.mock import patch

import pytest
import torch

from benchmarks.measure import Calls
from benchmarks.penalty import count, inputs
from sae_lens_c2r.penalties import neighbors
from tests.architectures.training import make_sae, step_input
from tests.strategies import WITH_C2R

AT_MOST = {
    4096: {"forward_calls": 45, "backward_calls": 50, "forward_gb": 1, "backward_gb": 1},
    16384: {"forward_calls": 55, "backward_calls": 50, "forward_gb": 3.5, "backward_gb": 3},
    65536: {"forward_calls": 120, "backward_calls": 60, "forward_gb": 13, "backward_gb": 11},
}


@pytest.mark.parametrize("d_sae", AT_MOST)
def test_calls_and_bytes_are_few_and_none_waits(d_sae: int) -> None:
    found = count(*inputs("meta", d_sae, "meta"), 8192)
    assert found["waits"] == []
    assert {
        name: found[name] for name, most in AT_MOST[d_sae].items() if found[name] > most
    } == {}


@pytest.mark.parametrize(
    "options",
    [
        *({"architecture": name} for name in WITH_C2R),
        *({"c2r_pairs": "all", "c2r_gate": gate} for gate in ("relu", "none")),
        {"c2r_gate": "none", "c2r_exponent": 1.5},
        {"rescale_acts_by_decoder_norm": False, "dtype": "bfloat16"},
        {"normalize_activations": "layer_norm"},
    ],
    ids=str,
)
def test_a_training_step_does_not_wait_for_its_penalties(options: dict[str, Any]) -> None:
    sae = make_sae(**{"architecture": "batchtopk_c2r", "c2r_chunk_size": 16, **options})
    given = step_input(sae)
    sae, given.sae_in = sae.to("meta"), given.sae_in.to("meta")
    acts = torch.empty(len(given.sae_in), sae.cfg.d_sae, device="meta", dtype=sae.dtype)
    with Calls() as calls, patch.object(neighbors, "has_fast_bfloat16", lambda _: True):
        sum(sae._penalty_losses(given, acts.requires_grad_()).values()).backward()
    assert calls.waits == []
    assert calls.number > 30


def test_calls_are_counted_with_what_they_move() -> None:
    """Views, and memory that nothing is written into, are asked of no device."""
    left, right = torch.ones(2, 10, 4).unbind()
    with Calls() as calls:
        torch.empty(5, 5)
        total = (left.T[1:].T + right[:, 1:]).sum()  # 30 values twice, and as many written
        left.index_select(0, torch.arange(3))  # 3 integers, then 12 values read and written
        right.mul_(2)  # 40 values read and written
        assert calls.waits == []
        assert calls.bytes == 4 * (3 * 30 + 31 + 2 * 12 + 2 * 40) + 8 * 3
        total.item()
        right.nonzero()
    assert calls.waits == ["_local_scalar_dense", "nonzero"]
    assert calls.number == 7
