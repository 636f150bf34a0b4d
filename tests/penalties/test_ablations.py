"""Other pairs and other gates than the paper's, against their definitions."""

from functools import partial

import pytest
import torch
from hypothesis import given

from sae_lens_c2r import c2r_penalty, nearest_neighbors, orthogonality_penalty
from sae_lens_c2r.penalties.gates import chance_composition
from sae_lens_c2r.penalties.tiles import BYTES_PER_TILE
from tests import properties, reference
from tests.penalties.test_c2r import assert_agrees
from tests.penalties.test_neighbors import chunks_drawn
from tests.strategies import Case, cases, chunk_sizes, exponents, seeds

GATES = ["relu", "excess", "none"]


@pytest.mark.parametrize("gate", GATES)
@given(case=cases(max_d_sae=5), chunk_size=chunk_sizes, exponent=exponents, seed=seeds)
def test_all_pairs_equal_the_definition(
    gate: str, case: Case, chunk_size: int | None, exponent: float, seed: int
) -> None:
    penalty = partial(
        c2r_penalty,
        pairs="all",
        gate=gate,
        exponent=exponent,
        chunk_size=chunk_size,
        generator=torch.Generator().manual_seed(seed),
    )
    found = properties.gradients(penalty, case)
    acts = case.feature_acts.clone().requires_grad_()
    W_dec = case.W_dec.clone().requires_grad_()
    others = [
        (i, j)
        for chunk in chunks_drawn(case.d_sae, chunk_size, seed)
        for i in chunk
        for j in chunk
    ]
    threshold = threshold_of(gate, case, chunk_size)
    expected = reference.sum_over_pairs(acts, W_dec, others, exponent, threshold=threshold)
    compare(found, expected / case.d_sae, acts, W_dec, case, exponent)


@pytest.mark.parametrize("gate", ["excess", "none"])
@given(case=cases(), chunk_size=chunk_sizes, exponent=exponents, seed=seeds)
def test_nearest_pairs_with_another_gate_equal_the_definition(
    gate: str, case: Case, chunk_size: int | None, exponent: float, seed: int
) -> None:
    neighbors = nearest_neighbors(
        case.W_dec, chunk_size=chunk_size, generator=torch.Generator().manual_seed(seed)
    )
    penalty = partial(
        c2r_penalty,
        gate=gate,
        exponent=exponent,
        neighbors=neighbors,
        chunk_size=chunk_size,
    )
    found = properties.gradients(penalty, case)
    acts = case.feature_acts.clone().requires_grad_()
    W_dec = case.W_dec.clone().requires_grad_()
    pairs = list(enumerate(neighbors.tolist()))
    threshold = threshold_of(gate, case, chunk_size)
    expected = reference.sum_over_pairs(acts, W_dec, pairs, exponent, threshold=threshold)
    compare(found, expected / case.d_sae, acts, W_dec, case, exponent)


def threshold_of(gate: str, case: Case, chunk_size: int | None) -> float | None:
    """The cosine that chance gives a latent among those in which it looks for a neighbour."""
    if gate != "excess":
        return {"relu": 0.0, "none": None}[gate]
    searched = max(2, min(chunk_size or case.d_sae, case.d_sae))
    return max(0.0, chance_composition(searched, max(2, case.W_dec.shape[1])))


def compare(found, expected, acts, W_dec, case: Case, exponent: float) -> None:
    largest_pair = (2 * case.feature_acts.norm(dim=0).max().item()) ** exponent
    assert_agrees(found[0], expected.detach(), largest_pair * case.d_sae)
    if expected > 0:
        grads = torch.autograd.grad(
            expected, (acts, W_dec), allow_unused=True, materialize_grads=True
        )
        lengths = [length for length in case.W_dec.norm(dim=1).tolist() if length > 0]
        assert_agrees(found[1], grads[0], case.d_sae)
        assert_agrees(found[2], grads[1], case.d_sae * largest_pair / min(lengths, default=1.0))


@pytest.mark.parametrize("gate", ["relu", "excess"])
@given(case=cases(), chunk_size=chunk_sizes, seed=seeds)
def test_orthogonality_penalty_is_c2r_with_pairs_of_norm_one(
    gate: str, case: Case, chunk_size: int | None, seed: int
) -> None:
    halves = torch.full((1, case.d_sae), 0.5, dtype=torch.float64)
    neighbors = nearest_neighbors(
        case.W_dec, chunk_size=chunk_size, generator=torch.Generator().manual_seed(seed)
    )
    options = {"gate": gate, "chunk_size": chunk_size, "neighbors": neighbors}
    found = orthogonality_penalty(case.W_dec, **options)
    torch.testing.assert_close(found, c2r_penalty(halves, case.W_dec, **options))
    assert 0 <= found <= 1


@pytest.mark.parametrize("chunk_size", [64, None])
def test_all_pairs_keep_a_few_decoders_for_backward(
    chunk_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 32 tiles to a dictionary: neither their cosines nor the rows gathered for them."""
    monkeypatch.setitem(BYTES_PER_TILE, "cpu", 16 * (chunk_size or 512) * 4)
    kept = properties.kept_for_backward("all", d_sae=512, d_in=8, chunk_size=chunk_size)
    assert kept < 4 * (512 * 8 * 4)


def test_all_pairs_pass_gradcheck_tile_by_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BYTES_PER_TILE, "cpu", 2 * 5 * 8)
    torch.manual_seed(0)
    acts = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    W_dec = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *x: c2r_penalty(*x, pairs="all"), (acts, W_dec))
