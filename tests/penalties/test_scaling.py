"""Lambda that transfers."""

from typing import Any

import pytest
import torch

from sae_lens_c2r.penalties import transfer_factor, typical_norm

PAPER = {"batch_size": 2048, "d_sae": 65536, "d_in": 2304, "chunk_size": 8192}


@pytest.mark.parametrize("pairs", ["nearest", "all"])
@pytest.mark.parametrize("gate", ["relu", "none"])
@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_the_paper_is_taken_at_its_word_in_its_own_setting(
    pairs: str, gate: str, exponent: float
) -> None:
    assert transfer_factor(**PAPER, pairs=pairs, gate=gate, exponent=exponent) == 1.0


@pytest.mark.parametrize(
    ("variant", "changed", "factor"),
    [
        ({}, {"batch_size": 4 * 2048}, 0.5),
        ({}, {"d_sae": 4 * 65536}, 2.0),
        ({}, {"d_in": 2 * 2304}, 2.0),
        ({}, {"chunk_size": 8192**2 // 1024}, 13 / 16),  # n = min(C, k) = 2**16 against 2**13
        ({}, {"chunk_size": None}, 13 / 16),
        ({"exponent": 2.0}, {"batch_size": 4 * 2048}, 1 / 4),
        ({"gate": "none"}, {"d_in": 2 * 2304}, 1.0),
        ({"pairs": "all"}, {"d_in": 2 * 2304}, 2.0),
        ({"pairs": "all"}, {"chunk_size": 4096}, 8191 / 4095),
        ({"pairs": "all", "gate": "none"}, {"chunk_size": 4096, "d_in": 7}, 8191 / 4095),
    ],
)
def test_each_factor_by_itself_with_the_chance_level_of_a_variant(
    variant: dict[str, Any], changed: dict[str, int | None], factor: float
) -> None:
    found = transfer_factor(**{**PAPER, **variant, **changed})
    assert found == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize("d_sae", [1, 2])
def test_smallest_dictionaries_have_a_finite_factor(d_sae: int) -> None:
    assert 0 < transfer_factor(**{**PAPER, "d_sae": d_sae}) < float("inf")


def test_typical_norm_is_driven_by_no_massive_tokens_is_detached_and_finite() -> None:
    sae_in = torch.nn.functional.normalize(torch.randn(4, 25, 16), dim=-1)
    sae_in[:, 0] *= 3000
    assert typical_norm(sae_in).item() == pytest.approx(1.0, rel=1e-5)
    sae_in = torch.full((8, 64), 6e4, dtype=torch.float16, requires_grad=True)
    norm = typical_norm(sae_in)
    assert not norm.requires_grad
    assert norm.item() == pytest.approx(8 * 6e4, rel=1e-2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_typical_norm_takes_every_precision_and_leaves_out_zeros(dtype: torch.dtype) -> None:
    sae_in = torch.zeros(10, 4, dtype=dtype)
    assert typical_norm(sae_in).item() == 0
    sae_in[:3] = 2.0
    assert typical_norm(sae_in).item() == 4
