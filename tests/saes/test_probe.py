"""Two encodings of a batch are told apart where they are of two SAEs."""

import pytest
import torch

from sae_lens_c2r.saes.encoding import contributions, encodes_alike, trained_contributions
from sae_lens_c2r.saes.sae_ref import inference_form
from tests.architectures.training import make_sae

ENCODED = torch.arange(1.0, 65).repeat(16, 1).T  # 64 rows, each of a length of its own


def test_rounding_and_very_few_rows_may_differ() -> None:
    rounded = ENCODED * (1 + 1e-6)
    assert encodes_alike(rounded, ENCODED)
    rounded[:3] = 0
    assert encodes_alike(rounded, ENCODED)
    rounded[3] = 0
    assert not encodes_alike(rounded, ENCODED)


def test_weights_of_16_bits_are_compared_coarsely() -> None:
    rounded = ENCODED * 1.01
    assert not encodes_alike(rounded, ENCODED)
    assert encodes_alike(rounded, ENCODED, dtype=torch.bfloat16)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_agrees_with_nothing(value: float) -> None:
    broken = torch.full_like(ENCODED, value)
    assert not encodes_alike(broken, ENCODED)
    assert not encodes_alike(broken, broken)


def test_another_number_of_latents_does_not_agree() -> None:
    assert not encodes_alike(ENCODED[:, :-1], ENCODED)


@pytest.mark.parametrize("architecture", ["batchtopk_c2r", "topk_c2r", "standard_c2r"])
def test_a_saved_sae_contributes_what_the_trained_one_does(
    architecture: str,
) -> None:
    trained = make_sae(architecture)
    inputs = 5 * torch.randn(64, trained.cfg.d_in)
    expected = trained_contributions(trained, inputs)
    saved = inference_form(trained)
    assert encodes_alike(contributions(saved.encode(inputs), saved), expected)
    other = inference_form(make_sae(architecture, seed=1))
    assert not encodes_alike(contributions(other.encode(inputs), other), expected)
