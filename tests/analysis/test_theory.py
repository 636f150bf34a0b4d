"""The paper's analysis of two latents, as functions that agree with each other."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from sae_lens_c2r.analysis import AbsorptionPairs
from sae_lens_c2r.penalties.norms import batch_norms
from tests.analysis.theory import activation_table, energies, pair_loss, pair_loss_derivative

positive = st.floats(0.01, 100)
alphas = st.floats(0, 1)


@st.composite
def samples(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """A feature that fires alone on some samples and beside a residual on others."""
    alone = draw(st.lists(positive, min_size=1, max_size=5))
    beside = draw(st.lists(st.tuples(positive, positive), min_size=1, max_size=5))
    feature = torch.tensor(alone + [z1 for z1, _ in beside], dtype=torch.float64)
    residual = torch.tensor([0.0] * len(alone) + [z2 for _, z2 in beside], dtype=torch.float64)
    return feature, residual


def pair(alpha: float, A: float, B: float) -> AbsorptionPairs:
    """A pair of latents with a leak and energies that are known."""
    latent, energy = torch.zeros(1, dtype=torch.long), torch.ones(1, dtype=torch.float64)
    return AbsorptionPairs(latent, latent, energy, A * energy, B * energy, alpha * energy)


@given(data=samples(), alpha=alphas)
def test_pair_loss_is_the_norms_of_the_activation_table(data, alpha: float) -> None:
    norms = batch_norms(activation_table(*data, alpha), torch.float64)
    assert norms.sum().item() == pytest.approx(pair_loss(alpha, *energies(*data)), rel=1e-12)


@given(data=samples(), alpha=alphas)
def test_the_table_reconstructs_the_same_energy_of_the_feature(data, alpha: float) -> None:
    """Of every sample: (1 - alpha) z_1 along L_1, and alpha z_1 inside the second latent."""
    feature, residual = data
    first, second = activation_table(feature, residual, alpha).T
    leaked = (second**2 - residual**2).clamp(min=0).sqrt()
    torch.testing.assert_close(first + leaked, feature, rtol=1e-5, atol=1e-4)


@given(data=samples(), alpha=st.floats(0.001, 0.999))
def test_derivative_agrees_with_autograd_and_finite_differences(data, alpha: float) -> None:
    A, B, C = energies(*data)
    leak = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    loss = torch.sqrt(A + (1 - leak) ** 2 * C) + torch.sqrt(leak**2 * C + B)
    (gradient,) = torch.autograd.grad(loss, leak)
    found = pair_loss_derivative(alpha, A, B, C)
    scale = max(1.0, math.sqrt(C))
    assert found == pytest.approx(gradient.item(), abs=1e-10 * scale)
    step = 1e-6
    difference = pair_loss(alpha + step, A, B, C) - pair_loss(alpha - step, A, B, C)
    curvature = C / min(math.sqrt(B), math.sqrt(A))
    assert found == pytest.approx(difference / (2 * step), abs=1e-4 * max(scale, curvature))


@given(data=samples(), alpha=alphas)
def test_grows_exactly_from_the_threshold_on(data, alpha: float) -> None:
    A, B, C = energies(*data)
    found = pair(alpha, A, B)
    assume(abs(alpha - found.thresholds.item()) > 1e-6)
    assert found.satisfied.item() == (pair_loss_derivative(alpha, A, B, C) > 0)


@given(data=samples())
def test_is_stationary_at_the_threshold(data) -> None:
    A, B, C = energies(*data)
    slope = pair_loss_derivative(pair(0.0, A, B).thresholds.item(), A, B, C)
    assert slope == pytest.approx(0, abs=1e-9 * math.sqrt(C))


@given(data=samples(), alpha=st.floats(0.01, 1))
def test_lemma_l1_prefers_the_leak(data, alpha: float) -> None:
    """The paper's lemma: L1 falls with alpha, and at a full leak L0 does as well."""
    ideal, leaking = (activation_table(*data, leak) for leak in (0.0, alpha))
    assert leaking.sum() < ideal.sum()
    full = activation_table(*data, 1.0)
    assert full.count_nonzero() < ideal.count_nonzero()


@given(data=samples(), low=alphas, high=alphas)
def test_lemma_l1_falls_monotonically(data, low: float, high: float) -> None:
    low, high = sorted((low, high))
    more, less = (activation_table(*data, leak).sum().item() for leak in (low, high))
    assert less <= more * (1 + 1e-12)
