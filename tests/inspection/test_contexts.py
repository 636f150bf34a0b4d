"""The most redundant pairs, and the tokens on which latents fire most."""

import pytest
import torch
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.inspection.contexts import (
    Latent,
    TextActivations,
    latents_in_context,
    most_alike,
    pairs_in_context,
    parse_latents,
)
from tests.inspection.planted import planted_sae, text_of

# Latents 0 and 1 are alike, then 2 and 3; 4 is nearest to 1; 5 is opposite to 3.
W_DEC = torch.tensor(
    [
        [1.0, 0, 0, 0, 0, 0],
        [0.9, 0.43589, 0, 0, 0, 0],
        [0, 0, 3.0, 0, 0, 0],
        [0, 0, 0.6, 0.8, 0, 0],
        [0, 1.0, 0, 0, 0, 0],
        [0, 0, 0, -1.0, 0, 0],
    ]
)
ALIVE = torch.full((6,), 100)


def dead(*latents: int) -> Tensor:
    times_fired = ALIVE.clone()
    times_fired[list(latents)] = 5  # fewer than the tokens that are shown
    return times_fired


def test_pairs_come_by_falling_cosine_and_no_latent_twice() -> None:
    assert most_alike(W_DEC, ALIVE, most=8).tolist() == [[0, 1], [2, 3]]


def test_there_are_at_most_so_many_pairs() -> None:
    assert most_alike(W_DEC, ALIVE, most=1).tolist() == [[0, 1]]
    assert most_alike(W_DEC, ALIVE, most=0).shape == (0, 2)


def test_a_latent_that_hardly_fires_is_in_no_pair() -> None:
    assert most_alike(W_DEC, dead(2), most=8).tolist() == [[0, 1]]
    # Latent 4's nearest is 1, and that 0 hardly fires makes room for them.
    assert most_alike(W_DEC, dead(0), most=8).tolist() == [[2, 3], [1, 4]]


def test_latents_that_are_not_alike_are_no_pair() -> None:
    assert most_alike(torch.eye(5), ALIVE[:5], most=8).shape == (0, 2)
    weak = torch.eye(4)
    weak[1] = torch.tensor([0.29, 1.0, 0, 0])
    assert most_alike(weak, ALIVE[:4], most=8).shape == (0, 2)


def first_latent(text: TextActivations) -> Latent:
    d_in = text.activations.shape[1]
    return latents_in_context(planted_sae(torch.eye(d_in)), text, [0])[0]


def test_a_latent_is_shown_by_its_highest_activations() -> None:
    acts = torch.zeros(40, 6)
    acts[[0, 4, 8, 12, 16, 20, 24, 28], 2] = torch.tensor([3.0, 8, 1, 7, 5, 2, 6, 4])
    silent, latent = latents_in_context(planted_sae(torch.eye(6)), text_of(acts), [5, 2])
    assert (latent.index, latent.times_fired) == (2, 8)
    assert [token.activation for token in latent.top_tokens] == [8, 7, 6, 5, 4, 3]
    assert [token.token for token in latent.top_tokens][:3] == ["w5", "w13", "w25"]
    assert (silent.index, silent.times_fired, silent.top_tokens) == (5, 0, [])


def test_of_each_row_of_a_text_only_one_token_is_shown() -> None:
    acts = torch.zeros(12, 6)
    acts[:4, 0] = torch.tensor([1.0, 9, 8, 7])  # one row
    acts[8, 0] = 2.0
    latent = first_latent(text_of(acts))
    assert latent.times_fired == 5
    shown = [(token.token, token.activation) for token in latent.top_tokens]
    assert shown == [("w2", 9), ("w9", 2)]


def test_a_token_stands_between_the_six_before_and_the_six_after_it() -> None:
    acts = torch.zeros(20, 6)
    acts[9, 0] = 1.0
    (token,) = first_latent(text_of(acts, tokens_of_a_row=20)).top_tokens
    assert token.before == "w4 w5 w6 w7 w8 w9"
    assert (token.token, token.after) == ("w10", "w11 w12 w13 w14 w15 w16")


@pytest.mark.parametrize(
    ("position", "before", "after"), [(0, "", "w2 w3 w4"), (3, "w1 w2 w3", "")]
)
def test_the_context_ends_where_the_row_does(position: int, before: str, after: str) -> None:
    acts = torch.zeros(8, 6)
    acts[position, 0] = 1.0
    (token,) = first_latent(text_of(acts)).top_tokens
    assert (token.before, token.after) == (before, after)


def test_latents_that_fire_negatively_fire() -> None:
    acts = torch.zeros(12, 2)
    acts[[0, 4], 0] = torch.tensor([-3.0, 2.0])
    sae = planted_sae(torch.eye(2))
    sae.encode = lambda inputs: inputs  # type: ignore[method-assign]
    (latent,) = latents_in_context(sae, text_of(acts), [0])
    assert latent.times_fired == 2
    assert [token.activation for token in latent.top_tokens] == [-3, 2]


def test_the_pairs_of_an_sae_have_their_cosine_and_their_tokens() -> None:
    acts = torch.zeros(40, 6)
    acts[:16, 0] = 1.0
    acts[12:20, 1] = 2.0
    acts[:, 2:4] = 1.0
    wanted = torch.tensor([[0, 1], [2, 3]])
    pairs = pairs_in_context(planted_sae(W_DEC), text_of(acts), wanted)
    assert [pair.cosine for pair in pairs] == pytest.approx([0.9, 0.6], abs=1e-5)
    assert [[latent.index for latent in pair.latents] for pair in pairs] == wanted.tolist()
    times_fired = [[latent.times_fired for latent in pair.latents] for pair in pairs]
    assert times_fired == [[16, 8], [40, 40]]
    assert [pair.times_fired_together for pair in pairs] == [4, 40]
    assert [pair.jaccard for pair in pairs] == [4 / 20, 1]


def test_an_sae_without_alike_latents_has_no_pairs() -> None:
    text, sae = text_of(torch.ones(40, 6)), planted_sae(torch.eye(6))
    assert pairs_in_context(sae, text, most_alike(sae.W_dec, ALIVE, most=2)) == []


@pytest.mark.parametrize("written", ["3;4", "-1", "", "7" * 6000])
def test_latents_are_numbers(written: str) -> None:
    assert parse_latents("3, 17,3") == [3, 17]
    with pytest.raises(UserError, match=r"^`latents` should be numbers of latents") as raised:
        parse_latents(written)
    assert len(str(raised.value)) < 150
