"""Composition and pairs of latents that are alike."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from sae_lens_c2r.analysis import (
    chance_composition,
    composition,
    latents_of_features,
    max_cosines,
    max_cosines_and_counts,
    pairs_above,
)
from sae_lens_c2r.analysis.similarity import pairs_above_and_count
from sae_lens_c2r.penalties import nearest_neighbors
from sae_lens_c2r.penalties.cosines import VALUES_PER_TILE
from tests import reference
from tests.strategies import Case, cases


def count_pairs(W_dec: torch.Tensor, *, above: list[float]) -> list[int]:
    return max_cosines_and_counts(W_dec, above=above)[1]


@given(case=cases())
def test_composition_is_the_mean_of_the_highest_cosines(case: Case) -> None:
    neighbors = reference.nearest(case.W_dec, [list(range(case.d_sae))])
    cosines = [
        reference.cosine(case.W_dec[i], case.W_dec[j]).item() if i != j else 0.0
        for i, j in enumerate(neighbors)
    ]
    assert max_cosines(case.W_dec).tolist() == pytest.approx(cosines, abs=1e-12)
    assume(case.W_dec.any())  # or composition is refused
    assert composition(case.W_dec) == pytest.approx(sum(cosines) / len(cosines), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_the_length_of_rows_does_not_matter_even_where_its_square_is_out_of_range(
    scale: float, dtype: torch.dtype
) -> None:
    W_dec = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    scales = torch.ones(20, 1).index_fill(0, torch.arange(0, 20, 2), scale)
    rows = (W_dec * scales).to(dtype)
    unit = torch.nn.functional.normalize(rows.double())
    assert composition(rows) == pytest.approx(composition(unit), abs=1e-6)
    assert count_pairs(rows, above=[0.5]) == count_pairs(unit, above=[0.5])
    assert torch.equal(nearest_neighbors(rows), nearest_neighbors(unit))
    assert torch.equal(
        latents_of_features(rows, unit)[0], latents_of_features(unit, rows.double())[0]
    )


def test_equal_rows_are_not_more_than_alike() -> None:
    for seed in range(40):
        row = torch.randn(1, 5, generator=torch.Generator().manual_seed(seed))
        assert composition(row.repeat(2, 1)) <= 1


@given(case=cases(), above=st.lists(st.floats(-0.95, 0.95), min_size=1, max_size=3))
def test_every_pair_above_a_threshold_is_counted_once(case: Case, above: list[float]) -> None:
    cosines = [
        reference.cosine(case.W_dec[i], case.W_dec[j]).item()
        for i in range(case.d_sae)
        for j in range(i + 1, case.d_sae)
    ]
    for threshold, count in zip(above, count_pairs(case.W_dec, above=above), strict=True):
        surely = sum(cosine > threshold + 1e-12 for cosine in cosines)
        perhaps = sum(cosine > threshold - 1e-12 for cosine in cosines)
        assert surely <= count <= perhaps


@pytest.mark.parametrize("rows", [1, 7, 99])
def test_tiles_do_not_change_the_count(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    W_dec = torch.randn(100, 6, dtype=torch.float64)
    above = [-1.0, 0.0, 0.5, 0.8]
    whole = count_pairs(W_dec, above=above)
    assert whole[0] == 100 * 99 / 2
    monkeypatch.setitem(VALUES_PER_TILE, "cpu", rows * len(W_dec))
    assert count_pairs(W_dec, above=above) == whole
    found = pairs_above(W_dec, 0.5)
    assert len(found) == whole[2]
    assert (found[:, 0] < found[:, 1]).all()
    assert len(found.unique(dim=0)) == len(found)
    assert (torch.cosine_similarity(*W_dec[found].unbind(1)) > 0.5 - 1e-12).all()


@pytest.mark.parametrize(("d_sae", "d_in"), [(4096, 384), (512, 16), (64, 3), (50, 2)])
def test_random_directions_have_the_chance_level(d_sae: int, d_in: int) -> None:
    W_dec = torch.randn(d_sae, d_in, generator=torch.Generator().manual_seed(0))
    assert composition(W_dec) == pytest.approx(chance_composition(d_sae, d_in), rel=0.01)


@pytest.mark.parametrize("d_sae", [2, 3, 10, 1000])
def test_chance_is_that_of_uniform_cosines_in_three_dimensions(d_sae: int) -> None:
    others = d_sae - 1  # the highest of as many numbers that are uniform from -1 to 1
    assert chance_composition(d_sae, 3) == pytest.approx((others - 1) / (others + 1), abs=1e-6)
    for d_in in (2, 64, 2304):  # of one other latent it is no cosine
        assert chance_composition(2, d_in) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("most", [0, 1, 50, 10**6])
def test_of_too_many_pairs_the_most_alike_are_listed(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VALUES_PER_TILE, "cpu", 700)
    alike = torch.ones(5) + 0.1 * torch.randn(90, 5, dtype=torch.float64)
    [every], listed = count_pairs(alike, above=[0.5]), pairs_above(alike, 0.5, most=most)
    assert every == pairs_above_and_count(alike, 0.5, most=most)[1] == 90 * 89 / 2
    assert len(listed) == min(most, every)
    cosines = torch.cosine_similarity(*alike[pairs_above(alike, 0.5)].unbind(1)).sort().values
    found = torch.cosine_similarity(*alike[listed].unbind(1)).sort().values
    torch.testing.assert_close(found, cosines[len(cosines) - len(found) :])
