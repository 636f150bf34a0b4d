"""The search for the nearest decoder row."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

from sae_lens_c2r import c2r_penalty, nearest_neighbors, orthogonality_penalty
from sae_lens_c2r.analysis import co_firing
from sae_lens_c2r.penalties import cosines, neighbors, step_generator
from sae_lens_c2r.penalties.cosines import VALUES_PER_TILE
from tests import reference
from tests.strategies import DENSE_LAYOUTS, Case, cases, chunk_sizes, seeds


def chunks_drawn(d_sae: int, chunk_size: int | None, seed: int) -> list[list[int]]:
    if chunk_size is None or chunk_size >= d_sae:
        return [list(range(d_sae))]
    order = torch.randperm(d_sae, generator=torch.Generator().manual_seed(seed))
    return [chunk.tolist() for chunk in order.split(chunk_size)]


@given(case=cases(), chunk_size=chunk_sizes, seed=seeds)
def test_each_neighbor_has_the_highest_cosine_of_the_chunk(
    case: Case, chunk_size: int | None, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    found = nearest_neighbors(case.W_dec, chunk_size=chunk_size, generator=generator)
    chunks = chunks_drawn(case.d_sae, chunk_size, seed)
    expected = reference.nearest(case.W_dec, chunks)
    for chunk in chunks:
        for i in chunk:
            j = int(found[i])
            assert j in chunk
            assert (j == i) == (len(chunk) == 1)
            best = reference.cosine(case.W_dec[i], case.W_dec[expected[i]])
            assert abs(reference.cosine(case.W_dec[i], case.W_dec[j]) - best) < 1e-12


@pytest.fixture(params=["cpu", "accelerator"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kind of device: what an accelerator does, a CPU can do."""
    if request.param == "accelerator":
        monkeypatch.setattr(cosines, "CPU", "none of these")
        monkeypatch.setattr(neighbors, "CPU", "none of these")
    return request.param


@pytest.mark.parametrize("d_sae", [1, 2, 37, 100, 200])
@pytest.mark.parametrize("edge", [16, 48])
def test_tiles_do_not_change_the_result(
    d_sae: int, edge: int, kind: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    W_dec = torch.randn(d_sae, 8, dtype=torch.float64, device=device)
    whole = nearest_neighbors(W_dec, chunk_size=None)
    monkeypatch.setitem(VALUES_PER_TILE, kind if device == "cpu" else "accelerator", edge**2)
    assert torch.equal(nearest_neighbors(W_dec, chunk_size=None), whole)
    unit = torch.nn.functional.normalize(W_dec, dim=1)
    nearest = (unit @ unit.T).fill_diagonal_(-torch.inf).argmax(dim=1)
    assert d_sae == 1 or torch.equal(whole, nearest)


@given(case=cases())
def test_ties_are_decided_alike_in_any_layout(case: Case) -> None:
    """A step and a function that are given the same rows then have the same penalty."""
    found = nearest_neighbors(case.W_dec)
    for layout in DENSE_LAYOUTS.values():
        assert torch.equal(nearest_neighbors(layout(case.W_dec)), found)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_rows_not_finite_are_not_hidden(
    value: float, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They poison the penalty, as they do every other loss: in later tiles, too."""
    monkeypatch.setitem(VALUES_PER_TILE, kind, 16 * 16)
    W_dec = torch.randn(40, 6)
    W_dec[3, 0] = value
    inverse = cosines.row_lengths(W_dec)[1]
    found = neighbors.search(W_dec, inverse, (None, None, None))
    assert ((found == 3) == (torch.arange(40) != 3)).all()
    assert c2r_penalty(torch.ones(2, 40), W_dec, chunk_size=None).isnan()
    assert orthogonality_penalty(W_dec, chunk_size=None).isnan()


def test_chunks_are_drawn_by_seed_and_step_or_else_anew() -> None:
    W_dec = torch.randn(64, 8)

    def found(seed: int, step: int) -> list[int]:
        generator = step_generator(seed, step)
        return nearest_neighbors(W_dec, chunk_size=8, generator=generator).tolist()

    assert found(3, 10) == found(3, 10)
    assert len({tuple(found(*at)) for at in [(3, 10), (3, 11), (4, 10), (31, 0)]}) == 4
    drawn = {tuple(nearest_neighbors(W_dec, chunk_size=8).tolist()) for _ in range(3)}
    assert len(drawn) == 3


@pytest.mark.usefixtures("unchecked_types")  # beartype draws from Python's random state
@pytest.mark.parametrize("generator", [None, step_generator(0, 0)])
def test_the_global_random_states_are_left_alone(generator: torch.Generator | None) -> None:
    W_dec = torch.randn(64, 8)
    before = torch.get_rng_state(), random.getstate()
    nearest_neighbors(W_dec, chunk_size=8, generator=generator)
    step_generator(1, 2)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize("scalar", [np.int64, np.int32, torch.tensor])
def test_a_chunk_size_may_be_a_scalar(scalar: Any) -> None:
    W_dec = torch.randn(10, 4)
    found, expected = (
        nearest_neighbors(W_dec, chunk_size=size, generator=step_generator(0, 0))
        for size in (scalar(3), 3)
    )
    assert torch.equal(found, expected)


def test_torch_s_default_device_changes_nothing() -> None:
    """On `meta`, a tensor that is made there has no data."""
    acts, W_dec = torch.rand(6, 10), torch.randn(10, 4)
    options: dict[str, Any] = {"chunk_size": 4, "generator": step_generator(0, 0)}
    expected, together = c2r_penalty(acts, W_dec, **options), co_firing([acts]).summary()
    options["generator"] = step_generator(0, 0)
    with torch.device("meta"):
        assert torch.equal(c2r_penalty(acts, W_dec, **options), expected)
        assert co_firing([acts]).summary() == together


def test_the_search_is_not_differentiated() -> None:
    """Nothing is kept for a backward pass, not even for as long as the search takes."""
    kept: list[torch.Tensor] = []
    W_dec = torch.randn(64, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda _: None):
        nearest_neighbors(W_dec, chunk_size=16)
    assert kept == []


@pytest.mark.parametrize("fast", [False, True])
def test_bfloat16_finds_what_is_hardly_further(
    fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: fast, raising=False)
    W_dec = torch.randn(300, 32, generator=torch.Generator().manual_seed(0))
    exact, found = (
        nearest_neighbors(W_dec, chunk_size=None, reduced_precision=reduced)
        for reduced in (False, True)
    )
    assert torch.equal(exact, found) == (not fast)
    highest, reached = (torch.cosine_similarity(W_dec, W_dec[each]) for each in (exact, found))
    torch.testing.assert_close(reached, highest, atol=0.005, rtol=0)


def test_chance_finds_redundant_pairs_over_the_steps() -> None:
    """A pair is examined when one chunk holds both: every 4th time or so in chunks of 1/4."""
    W_dec = torch.randn(64, 64)
    W_dec[40] = W_dec[7]
    together = [
        nearest_neighbors(W_dec, chunk_size=16, generator=step_generator(0, step))[7] == 40
        for step in range(200)
    ]
    assert 20 < sum(together) < 90


@pytest.mark.parametrize(
    ("amx", "avx512", "amd", "fast"),
    [
        (False, False, True, False),  # a laptop
        (False, True, False, False),  # Intel's without AMX, half as fast as in float32
        (False, True, True, True),
        (True, True, False, True),
    ],
)
def test_bfloat16_is_fast_where_it_was_seen_to_be(
    amx: bool, avx512: bool, amd: bool, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, has in (("_is_amx_tile_supported", amx), ("_is_avx512_bf16_supported", avx512)):
        monkeypatch.setattr(torch.cpu, name, lambda has=has: has, raising=False)
    monkeypatch.setattr(neighbors, "is_of_amd", lambda: amd)
    assert neighbors.has_fast_bfloat16(torch.device("cpu")) is fast
    assert not neighbors.has_fast_bfloat16(torch.device("meta"))
