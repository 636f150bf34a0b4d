"""The counterparts of a pair are the nearest latents of the other SAE."""

import pytest
import torch
from torch import Tensor

from sae_lens_c2r.demo.counterparts import with_counterparts
from sae_lens_c2r.inspection.contexts import Latent, Pair
from tests.inspection.planted import Words, planted_sae, text_of

PLAIN = torch.tensor([[1.0, 0, 0, 0], [2.7, 1.30767, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
OTHER = torch.tensor([[0, 0, 5.0, 0], [0, 0, 0, 1], [4, 0, 0, 0], [3, 4, 0, 0]])
ACTS = torch.zeros(20, 4)
ACTS[[2, 9], 2] = torch.tensor([3.0, 4.0])  # of the other SAE's latent 2
PAIR = Pair(0.9, (Latent(0, 7, []), Latent(1, 8, [])), 5)


ALL = torch.ones(4, dtype=torch.bool)


def look_up(*pairs: Pair, fires: Tensor = ALL) -> list:
    sae, other = planted_sae(PLAIN), planted_sae(OTHER)
    return with_counterparts(list(pairs), sae, other, text_of(ACTS), Words(), other_fires=fires)


def test_each_latent_has_the_one_whose_decoder_row_is_nearest() -> None:
    (found,) = look_up(PAIR)
    first, second = found.counterparts
    assert (first.latent.index, second.latent.index) == (2, 2)
    assert first.cosine == pytest.approx(1)
    assert second.cosine == pytest.approx(0.9, abs=1e-4)
    assert found.pair is PAIR


def test_the_counterparts_have_their_cosine_with_each_other() -> None:
    (one_latent,) = look_up(PAIR)
    assert one_latent.in_place.cosine == pytest.approx(1)
    assert (one_latent.in_place.jaccard, one_latent.kind) == (1, "merged")
    (apart,) = look_up(Pair(0.1, (Latent(0, 1, []), Latent(2, 1, [])), 0))
    assert [each.latent.index for each in apart.counterparts] == [2, 0]
    assert apart.in_place.cosine == pytest.approx(0)
    assert (apart.in_place.jaccard, apart.kind) == (0, "apart")


def test_a_latent_that_never_fires_is_in_no_place() -> None:
    (found,) = look_up(PAIR, fires=torch.tensor([True, True, False, True]))
    assert [each.latent.index for each in found.counterparts] == [3, 3]
    assert found.counterparts[0].cosine == pytest.approx(0.6)


def test_counterparts_are_shown_with_their_own_tokens() -> None:
    (found,) = look_up(PAIR)
    latent = found.counterparts[0].latent
    assert latent.times_fired == 2
    assert [(each.token, each.activation) for each in latent.top_tokens] == [
        ("w10", 4),
        ("w3", 3),
    ]
    (silent,) = look_up(Pair(0.1, (Latent(2, 1, []), Latent(3, 1, [])), 0))
    assert [each.latent.top_tokens for each in silent.counterparts] == [[], []]


def test_pairs_stay_in_their_order() -> None:
    other_pair = Pair(0.1, (Latent(2, 1, []), Latent(3, 1, [])), 0)
    found = look_up(other_pair, PAIR)
    assert [each.pair for each in found] == [other_pair, PAIR]
    assert [[c.latent.index for c in each.counterparts] for each in found] == [[0, 1], [2, 2]]


def test_no_pairs_have_no_counterparts() -> None:
    assert look_up() == []
