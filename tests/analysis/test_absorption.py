"""Absorption pairs: found where they were planted, with the condition of the paper's Section 3.

A feature fires on samples 1..m alone and on m+1..m+n together with a residual. With the leak
alpha, a second latent takes the share alpha of the feature on the latter.

Eq. (6) of the paper prints alpha and 1 - alpha in the direction of that latent the other way
round: its text and its table of activations, which are followed here, have the latent
orthogonal to the feature at alpha = 0.
"""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from sae_lens_c2r.analysis import AbsorptionPairs, absorption_pairs
from sae_lens_c2r.analysis.absorption import sums_in_float64
from sae_lens_c2r.penalties.batches import batch_norms

N_TOKENS, N_BESIDE = 400, 60
positive = st.floats(0.01, 100)


def activation_table(feature: Tensor, residual: Tensor, alpha: float | Tensor) -> Tensor:
    r"""Activations of both latents at a leak alpha: the table of the paper.

    Where the residual fires, the latents have :math:`(1-\alpha) z_1` and
    :math:`\sqrt{(\alpha z_1)^2 + z_2^2}`; elsewhere :math:`z_1` and 0.
    """
    leaks = residual > 0
    first = torch.where(leaks, (1 - alpha) * feature, feature)
    beside = torch.where(leaks, residual, 1.0)  # a hypotenuse of 0 has no gradient
    second = torch.where(leaks, torch.hypot(alpha * feature, beside), 0.0)
    return torch.stack([first, second], dim=1)


def energies(feature: Tensor, residual: Tensor) -> tuple[float, float]:
    """The energies A, of the feature alone, and B, of the residual: Eq. (22)."""
    alone = feature[residual == 0]
    return alone.square().sum().item(), residual.square().sum().item()


@st.composite
def samples(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """A feature that fires alone on some samples and beside a residual on others."""
    alone = draw(st.lists(positive, min_size=1, max_size=5))
    beside = draw(st.lists(st.tuples(positive, positive), min_size=1, max_size=5))
    feature = torch.tensor(alone + [z1 for z1, _ in beside], dtype=torch.float64)
    residual = torch.tensor([0.0] * len(alone) + [z2 for _, z2 in beside], dtype=torch.float64)
    return feature, residual


@given(data=samples(), alpha=st.floats(0, 1))
def test_the_penalty_works_against_a_leak_exactly_where_the_condition_holds(
    data: tuple[Tensor, Tensor], alpha: float
) -> None:
    """From the threshold of Eq. (13) on, the latents' norms grow with the leak."""
    latent, energy = torch.zeros(1, dtype=torch.long), torch.ones(1, dtype=torch.float64)
    A, B = energies(*data)
    pair = AbsorptionPairs(latent, latent, energy, A * energy, B * energy, alpha * energy)
    assume(abs(alpha - pair.thresholds.item()) > 1e-6)
    leak = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    norms = batch_norms(activation_table(*data, leak), torch.float64)
    [slope] = torch.autograd.grad(norms.sum(), leak)
    assert pair.satisfied.item() == (slope > 0)


def planted(alpha: float) -> tuple[Tensor, Tensor, float, float]:
    """Two latents with a leak, and one of its own: activations, decoder, A and B."""
    generator = torch.Generator().manual_seed(0)
    feature = torch.rand(N_TOKENS, generator=generator, dtype=torch.float64) + 0.5
    # In proportion, so that one decoder row serves all tokens, as the paper assumes.
    beside = torch.arange(N_TOKENS) < N_BESIDE
    residual = torch.where(beside, 0.6 * feature, 0.0)
    acts = activation_table(feature, residual, alpha)
    own = torch.rand(N_TOKENS, 1, generator=generator, dtype=torch.float64)
    rows = [[1.0, 0, 0, 0], [alpha, 0.6, 0, 0], [0, 0, 1.0, 0]]
    W_dec = torch.tensor(rows, dtype=torch.float64)
    W_dec[1] /= W_dec[1].norm()
    return torch.cat([acts, own], dim=1), W_dec, *energies(feature, residual)


@pytest.mark.parametrize("alpha", [1.0, 0.9])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_a_planted_leak_is_found_with_its_energies(alpha: float, scale: float) -> None:
    acts, W_dec, A, B = planted(alpha)
    silence = 0.5 if alpha == 1 else 0.0  # a parent that is not silent has leaked less
    pairs = absorption_pairs(W_dec * scale, (acts / scale).split(100), least_silence=silence)
    assert (pairs.parents.tolist(), pairs.children.tolist()) == ([0], [1])
    assert pairs.alpha.item() == pytest.approx(alpha)
    assert pairs.A.item() == pytest.approx(A)
    assert pairs.B.item() == pytest.approx(B)
    assert pairs.satisfied.tolist() == [True]


def test_energies_are_those_of_float32_in_float16_and_of_equal_rows_too() -> None:
    acts, W_dec, _, _ = planted(0.8)
    acts, W_dec = (300 * acts).half(), W_dec.half()
    expected = absorption_pairs(W_dec.float(), [acts.float()])
    found = absorption_pairs(W_dec, [acts])
    for name in ("A", "B", "alpha"):
        torch.testing.assert_close(
            getattr(found, name), getattr(expected, name), rtol=1e-3, atol=0
        )
    W_dec = torch.tensor([[1.0, 0.3, 0.7]]).expand(2, 3)
    equal = absorption_pairs(W_dec, [torch.eye(2).repeat_interleave(torch.tensor([30, 10]), 0)])
    assert len(equal) == 1
    assert (equal.B >= 0).all()
    assert not equal.thresholds.isnan().any()


def test_what_is_not_absorbed_is_no_pair_and_negative_activations_count_as_none() -> None:
    acts, W_dec, _, _ = planted(0.9)
    assert len(absorption_pairs(W_dec, [acts])) == 0  # the parent fires beside the child
    acts, W_dec, A, _ = planted(1.0)
    assert len(absorption_pairs(W_dec, [acts], least_firings=N_BESIDE + 1)) == 0
    assert len(absorption_pairs(W_dec, [acts], least_cosine=0.99)) == 0
    assert len(absorption_pairs(W_dec, [torch.zeros_like(acts)])) == 0
    acts[acts[:, 1] == 0, 1] = -1.0
    assert absorption_pairs(W_dec, [acts]).A.item() == pytest.approx(A)


class OnMPS(torch.Tensor):
    """A tensor that is, for all it says, on a device without float64."""

    device = torch.device("mps")

    def sum(self, *, dim: int, dtype: torch.dtype) -> torch.Tensor:
        assert dtype != torch.float64
        return self.as_subclass(torch.Tensor).sum(dim=dim, dtype=dtype)


def test_sums_are_of_float64_on_any_device() -> None:
    values = torch.rand(5, 3, dtype=torch.float64).float()
    exact = sums_in_float64(values, dim=0)
    assert torch.equal(exact, values.double().sum(dim=0))
    found = sums_in_float64(values.as_subclass(OnMPS), dim=0)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, exact, rtol=1e-6, atol=0)
