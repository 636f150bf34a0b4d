"""The chance level of composition, where it can be computed by hand."""

import pytest

from sae_lens_c2r.penalties.gates import chance_composition


@pytest.mark.parametrize("d_sae", [2, 3, 10, 1000])
def test_in_three_dimensions_it_is_that_of_uniform_cosines(d_sae: int) -> None:
    others = d_sae - 1  # the highest of as many numbers that are uniform from -1 to 1
    assert chance_composition(d_sae, 3) == pytest.approx((others - 1) / (others + 1), abs=1e-6)


@pytest.mark.parametrize("d_in", [2, 3, 64, 2304])
def test_of_one_other_latent_it_is_no_cosine(d_in: int) -> None:
    assert chance_composition(2, d_in) == pytest.approx(0, abs=1e-6)
