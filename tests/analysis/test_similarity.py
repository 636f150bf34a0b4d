"""Composition and redundant pairs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sae_lens_c2r.analysis import (
    chance_composition,
    composition,
    count_pairs,
    max_cosines,
    redundant_pairs,
)
from sae_lens_c2r.penalties.tiles import BYTES_PER_TILE
from tests import reference
from tests.strategies import Case, cases


@given(case=cases())
def test_composition_is_the_mean_of_the_highest_cosines(case: Case) -> None:
    neighbors = reference.nearest(case.W_dec, [list(range(case.d_sae))])
    cosines = [
        reference.cosine(case.W_dec[i], case.W_dec[j]).item() if i != j else 0.0
        for i, j in enumerate(neighbors)
    ]
    assert max_cosines(case.W_dec).tolist() == pytest.approx(cosines, abs=1e-12)
    assert composition(case.W_dec) == pytest.approx(sum(cosines) / len(cosines), abs=1e-12)


@given(case=cases(), above=st.floats(-0.95, 0.95))
def test_redundant_pairs_are_all_pairs_above_the_threshold(case: Case, above: float) -> None:
    expected = {
        (i, j): reference.cosine(case.W_dec[i], case.W_dec[j]).item()
        for i in range(case.d_sae)
        for j in range(i + 1, case.d_sae)
    }
    found = redundant_pairs(case.W_dec, above=above)
    pairs = [tuple(pair) for pair in found.latents.tolist()]
    assert len(set(pairs)) == len(found)
    assert found.cosines.tolist() == pytest.approx(
        [expected[pair] for pair in pairs], abs=1e-12
    )
    assert found.cosines.tolist() == sorted(found.cosines.tolist(), reverse=True)
    assert all(pair in pairs for pair, cosine in expected.items() if cosine > above + 1e-12)


@given(case=cases(), above=st.lists(st.floats(-1, 1), min_size=1, max_size=3))
def test_pairs_are_counted_as_they_are_found(case: Case, above: list[float]) -> None:
    found = [len(redundant_pairs(case.W_dec, above=threshold)) for threshold in above]
    assert count_pairs(case.W_dec, above=above) == found


def test_tiles_do_not_change_the_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    W_dec = torch.randn(100, 6, dtype=torch.float64)
    whole = redundant_pairs(W_dec, above=0.5)
    monkeypatch.setitem(BYTES_PER_TILE, "cpu", 7 * len(W_dec) * W_dec.itemsize)
    tiled = redundant_pairs(W_dec, above=0.5)
    assert torch.equal(tiled.latents, whole.latents)


@pytest.mark.parametrize(("d_sae", "d_in"), [(4096, 384), (512, 16), (64, 3), (50, 2)])
def test_random_directions_have_the_chance_level(d_sae: int, d_in: int) -> None:
    W_dec = torch.randn(d_sae, d_in, generator=torch.Generator().manual_seed(0))
    assert composition(W_dec) == pytest.approx(chance_composition(d_sae, d_in), rel=0.01)
