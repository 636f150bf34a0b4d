"""Laws of the gates."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sae_lens_c2r import c2r_penalty, orthogonality_penalty
from sae_lens_c2r.penalties.gates import chance_composition, gate_threshold, squared_gate
from tests import properties
from tests.strategies import Case

dimensions = st.integers(2, 512)
widths = st.integers(2, 4096)
thresholds = st.floats(0, 0.99)
cosines = st.floats(-1, 1).map(lambda cosine: torch.tensor(cosine, dtype=torch.float64))


@given(cosine=cosines, more=st.floats(0, 1), threshold=thresholds)
def test_opens_at_its_threshold_and_grows_from_there(
    cosine: torch.Tensor, more: float, threshold: float
) -> None:
    gate = squared_gate(cosine, threshold)
    assert 0 <= gate <= (1 - threshold) ** 2 + 1e-12
    assert (gate > 0) <= (cosine > threshold)
    assert squared_gate(cosine + more, threshold) >= gate
    assert gate <= squared_gate(cosine, 0.0), "more than the paper's"


@given(threshold=thresholds, step=st.floats(0, 1e-6))
def test_its_gradient_is_continuous_where_it_opens(threshold: float, step: float) -> None:
    near = torch.tensor(threshold + step, dtype=torch.float64, requires_grad=True)
    [gradient] = torch.autograd.grad(squared_gate(near, threshold), near)
    assert 0 <= gradient <= 2 * step + 1e-15


@given(d_sae=widths, d_in=dimensions, chunk_size=st.none() | widths)
def test_the_excess_gate_opens_at_the_level_of_chance(
    d_sae: int, d_in: int, chunk_size: int | None
) -> None:
    W_dec = torch.empty(d_sae, d_in, device="meta")
    found = gate_threshold("excess", W_dec, chunk_size)
    searched = min(chunk_size or d_sae, d_sae)
    assert found == pytest.approx(max(0.0, chance_composition(searched, d_in)))
    assert 0 <= found < 1
    assert gate_threshold("relu", W_dec, chunk_size) == 0
    assert gate_threshold("none", W_dec, chunk_size) is None


@pytest.mark.parametrize("pairs", ["nearest", "all"])
@given(share=st.floats(-1, 1), others=st.integers(1, 4))
def test_decoders_at_or_below_chance_are_left_alone(
    pairs: str, share: float, others: int
) -> None:
    """Two latents with a cosine up to that of chance, among others orthogonal to both."""
    d_sae = 2 + others
    cosine = share * chance_composition(d_sae, 2 + others)
    W_dec = torch.eye(d_sae, dtype=torch.float64)
    W_dec[1, :2] = torch.tensor([cosine - 1e-12, (1 - cosine**2) ** 0.5], dtype=torch.float64)
    acts = torch.ones(3, d_sae, dtype=torch.float64)
    penalty = partial(c2r_penalty, gate="excess", pairs=pairs)
    value, *gradients = properties.gradients(penalty, Case(acts, W_dec))
    assert value == 0
    assert all((gradient == 0).all() for gradient in gradients)
    assert orthogonality_penalty(W_dec, gate="excess") == 0


@pytest.mark.parametrize("d_sae", [1, 2, 3])
@pytest.mark.parametrize("d_in", [1, 2])
def test_the_smallest_dictionaries_have_finite_penalties(d_sae: int, d_in: int) -> None:
    case = Case(
        torch.ones(2, d_sae, dtype=torch.float64), torch.ones(d_sae, d_in, dtype=torch.float64)
    )
    properties.is_finite_and_not_negative(partial(c2r_penalty, gate="excess"), case)


@pytest.mark.parametrize("d_sae", [2, 3, 10, 1000])
def test_chance_is_that_of_uniform_cosines_in_three_dimensions(d_sae: int) -> None:
    others = d_sae - 1  # the highest of as many numbers that are uniform from -1 to 1
    assert chance_composition(d_sae, 3) == pytest.approx((others - 1) / (others + 1), abs=1e-6)
    for d_in in (2, 64, 2304):  # of one other latent it is no cosine
        assert chance_composition(2, d_in) == pytest.approx(0, abs=1e-6)
