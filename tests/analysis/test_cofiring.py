"""The laws of co-firing: it is what plain loops over the tokens find, however they are laid."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sae_lens_c2r.analysis import chance_co_firing, co_firing, cofiring, pair_jaccards
from tests.strategies import LAYOUTS_OF_ACTS, sparse_activations


def all_jaccards(acts: Tensor) -> dict[tuple[int, int], float]:
    """The definition, of the tokens on which each latent fires."""
    fired = [set(column.nonzero().flatten().tolist()) for column in acts.T]
    return {
        (i, j): len(fired[i] & fired[j]) / max(1, len(fired[i] | fired[j]))
        for i, j in combinations(range(len(fired)), 2)
    }


@pytest.fixture(params=[1, 3, 2**22])
def pairs_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of latents of every size."""
    monkeypatch.setattr(cofiring, "_PAIRS_AT_ONCE", request.param)


@pytest.mark.usefixtures("pairs_at_once")
@given(
    acts=sparse_activations(),
    above=st.lists(st.floats(0, 0.99), unique=True, max_size=3),
    per_batch=st.integers(1, 12),
    layout=st.sampled_from(sorted(LAYOUTS_OF_ACTS.keys() - {"of three dimensions"})),
    dtype=st.sampled_from([torch.float64, torch.bfloat16]),
)
def test_is_what_a_double_loop_finds(
    acts: Tensor, above: list[float], per_batch: int, layout: str, dtype: torch.dtype
) -> None:
    batches = [LAYOUTS_OF_ACTS[layout](batch) for batch in acts.to(dtype).split(per_batch)]
    found = co_firing(iter(batches), above=above)
    jaccards = all_jaccards(acts)
    for latent, highest in enumerate(found.highest.tolist()):
        own = [value for pair, value in jaccards.items() if latent in pair]
        assert highest == max(own, default=0.0)
        partner = int(found.partners[latent])
        assert (partner == latent) == (highest == 0)
        assert highest in (0, jaccards.get((min(latent, partner), max(latent, partner))))
    assert found.pairs == {
        threshold: sum(value > threshold for value in jaccards.values()) for threshold in above
    }
    assert found.times_fired.tolist() == [int(n) for n in (acts != 0).sum(dim=0)]
    assert found.n_tokens == len(acts)
    live = found.highest[found.times_fired > 0]
    assert found.live == len(live)
    assert found.mean == pytest.approx(live.mean().item() if len(live) else 0.0)
    assert 0 <= found.chance <= 1


@given(acts=sparse_activations(), data=st.data())
def test_a_pair_has_one_jaccard(acts: Tensor, data: st.DataObject) -> None:
    """Whichever latent comes first; it is that of the definition, and its highest is found."""
    latents = st.integers(0, acts.shape[1] - 1)
    drawn = data.draw(st.lists(st.tuples(latents, latents).filter(lambda p: p[0] != p[1])))
    pairs = torch.tensor(drawn, dtype=torch.long).view(-1, 2)
    found = pair_jaccards(acts.split(3), pairs)
    assert torch.equal(found, pair_jaccards([acts], pairs.flip(1)))
    jaccards = all_jaccards(acts)
    assert found.tolist() == [jaccards[min(pair), max(pair)] for pair in drawn]
    assert (found <= co_firing([acts]).highest[pairs].amin(dim=1)).all()


def test_entries_of_a_sparse_batch_that_are_0_do_not_fire() -> None:
    at, values = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 0]]), torch.tensor([1.0, 0.0, 2.0, -2.0])
    batch = torch.sparse_coo_tensor(at, values, (2, 3), check_invariants=True)
    assert co_firing([batch]).times_fired.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("least", "most", "n_tokens"),
    [
        *((1, 10, 2000), (1, 100, 2000), (50, 50, 2000), (5, 300, 4000)),
        # Often, in a short text.
        *((1, 60, 60), (5, 95, 100), (150, 190, 200), (3, 17, 20), (10, 10, 20), (32, 32, 64)),
    ],
)
def test_independence_gives_the_chance_level(least: int, most: int, n_tokens: int) -> None:
    generator = torch.Generator().manual_seed(0)
    times_fired = torch.randint(least, most + 1, (300,), generator=generator)
    # Each latent fires so often, on tokens drawn at random.
    drawn = torch.rand(3, n_tokens, 300, generator=generator).argsort(dim=1) < times_fired
    found = [co_firing([acts]) for acts in drawn.float()]
    mean = sum(each.mean for each in found) / len(found)
    assert mean == pytest.approx(found[0].chance, rel=0.05)
    dead = torch.cat([times_fired, torch.zeros(50, dtype=torch.long)])
    assert chance_co_firing(dead, n_tokens) == found[0].chance


@pytest.mark.parametrize("most", [20, 400, 3900])
def test_the_chance_level_of_a_long_text_is_the_exact_one(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    times_fired = torch.randint(1, most, (300,), generator=torch.Generator().manual_seed(0))
    exact = chance_co_firing(times_fired, 4000)
    monkeypatch.setattr(cofiring, "_EXACT_UP_TO", 0)
    about = chance_co_firing(times_fired, 4000)
    assert about != exact
    assert about == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("times_fired", [[7, 0], [0, 0, 0]])
def test_a_latent_alone_and_none_have_no_chance(times_fired: list[int]) -> None:
    assert chance_co_firing(torch.tensor(times_fired), 10) == 0
