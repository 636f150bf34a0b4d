"""Laws of the gates."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sae_lens_c2r import c2r_penalty, orthogonality_penalty
from sae_lens_c2r.penalties.gates import chance_composition, squared_gate
from tests import properties
from tests.strategies import Case

cosines = st.floats(-1, 1).map(lambda cosine: torch.tensor(cosine, dtype=torch.float64))


@given(cosine=cosines, more=st.floats(0, 1))
def test_opens_at_a_right_angle_and_grows_from_there(cosine: torch.Tensor, more: float) -> None:
    gate = squared_gate(cosine, "relu")
    assert 0 <= gate <= squared_gate(cosine, "none") == 1
    assert (gate > 0) <= (cosine > 0)
    assert squared_gate(cosine + more, "relu") >= gate


@given(cosine=st.floats(0, 1e-6))
def test_its_gradient_is_continuous_where_it_opens(cosine: float) -> None:
    near = torch.tensor(cosine, dtype=torch.float64, requires_grad=True)
    [gradient] = torch.autograd.grad(squared_gate(near, "relu"), near)
    assert 0 <= gradient <= 2 * cosine + 1e-15


@pytest.mark.parametrize("pairs", ["nearest", "all"])
@given(cosine=st.floats(-1, 0), others=st.integers(1, 4))
def test_decoders_at_right_angles_or_beyond_are_left_alone(
    pairs: str, cosine: float, others: int
) -> None:
    """Two latents, among others orthogonal to both."""
    W_dec = torch.eye(2 + others, dtype=torch.float64)
    W_dec[1, :2] = torch.tensor([cosine, (1 - cosine**2) ** 0.5], dtype=torch.float64)
    acts = torch.ones(3, 2 + others, dtype=torch.float64)
    penalty = partial(c2r_penalty, pairs=pairs)
    value, *gradients = properties.gradients(penalty, Case(acts, W_dec))
    assert value == 0
    assert all((gradient == 0).all() for gradient in gradients)
    assert orthogonality_penalty(W_dec) == 0


@pytest.mark.parametrize("d_sae", [1, 2, 3])
@pytest.mark.parametrize("d_in", [1, 2])
def test_the_smallest_dictionaries_have_finite_penalties(d_sae: int, d_in: int) -> None:
    case = Case(
        torch.ones(2, d_sae, dtype=torch.float64), torch.ones(d_sae, d_in, dtype=torch.float64)
    )
    properties.is_finite_and_not_negative(c2r_penalty, case)


@pytest.mark.parametrize("d_sae", [2, 3, 10, 1000])
def test_chance_is_that_of_uniform_cosines_in_three_dimensions(d_sae: int) -> None:
    others = d_sae - 1  # the highest of as many numbers that are uniform from -1 to 1
    assert chance_composition(d_sae, 3) == pytest.approx((others - 1) / (others + 1), abs=1e-6)
    for d_in in (2, 64, 2304):  # of one other latent it is no cosine
        assert chance_composition(2, d_in) == pytest.approx(0, abs=1e-6)
