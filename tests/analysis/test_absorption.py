"""Absorption pairs: found where they were planted, with the energies that they were given."""

import pytest
import torch
from torch import Tensor

from sae_lens_c2r.analysis import absorption_pairs
from tests.analysis.theory import activation_table, energies

N_TOKENS, N_BESIDE = 400, 60


def planted(alpha: float) -> tuple[Tensor, Tensor, float, float]:
    """Two latents with a leak, and one of its own: activations, decoder, A and B."""
    generator = torch.Generator().manual_seed(0)
    feature = torch.rand(N_TOKENS, generator=generator, dtype=torch.float64) + 0.5
    # In proportion, so that one decoder row serves all tokens, as the paper assumes.
    beside = torch.arange(N_TOKENS) < N_BESIDE
    residual = torch.where(beside, 0.6 * feature, 0.0)
    acts = activation_table(feature, residual, alpha)
    own = torch.rand(N_TOKENS, 1, generator=generator, dtype=torch.float64)
    W_dec = torch.tensor(
        [[1.0, 0, 0, 0], [alpha, 0.6, 0, 0], [0, 0, 1.0, 0]], dtype=torch.float64
    )
    W_dec[1] /= W_dec[1].norm()
    A, B, _ = energies(feature, residual)
    return torch.cat([acts, own], dim=1), W_dec, A, B


@pytest.mark.parametrize("alpha", [1.0, 0.9])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_a_planted_leak_is_found_with_its_energies(alpha: float, scale: float) -> None:
    acts, W_dec, A, B = planted(alpha)
    least_silence = 0.5 if alpha == 1 else 0.0  # a parent that is not silent has leaked less
    pairs = absorption_pairs(
        W_dec * scale, (acts / scale).split(100), least_silence=least_silence
    )
    assert (pairs.parents.tolist(), pairs.children.tolist()) == ([0], [1])
    assert pairs.alpha.item() == pytest.approx(alpha)
    assert pairs.A.item() == pytest.approx(A)
    assert pairs.B.item() == pytest.approx(B)
    assert pairs.thresholds.item() == pytest.approx(1 / ((A / B) ** 0.5 + 1))
    assert pairs.satisfied.tolist() == [True]


def test_what_is_not_absorbed_is_no_pair() -> None:
    acts, W_dec, _, _ = planted(0.9)
    assert len(absorption_pairs(W_dec, [acts])) == 0  # the parent fires beside the child
    acts, W_dec, _, _ = planted(1.0)
    assert len(absorption_pairs(W_dec, [acts], least_firings=N_BESIDE + 1)) == 0
    assert len(absorption_pairs(W_dec, [acts], least_cosine=0.99)) == 0
    assert len(absorption_pairs(W_dec, [torch.zeros_like(acts)])) == 0


def test_negative_activations_count_as_none() -> None:
    acts, W_dec, A, _ = planted(1.0)
    acts[acts[:, 1] == 0, 1] = -1.0
    assert absorption_pairs(W_dec, [acts]).A.item() == pytest.approx(A)
