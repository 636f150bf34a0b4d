"""The most redundant pairs, and the tokens on which latents fire most."""

import pytest
import torch

from sae_lens_c2r.analysis import co_firing
from sae_lens_c2r.inspection.contexts import (
    latents_in_context,
    most_alike,
    most_together,
    pairs_in_context,
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
WEAK = torch.eye(6)
WEAK[1] = torch.tensor([0.29, 1.0, 0, 0, 0, 0])

NEAR = torch.eye(6)
NEAR[:3, :2] = torch.tensor([[1.0, 0], [0.95, 0.3], [0.8, 0.6]])


@pytest.mark.parametrize(
    ("W_dec", "rare", "most", "pairs"),
    [
        (W_DEC, [], 8, [[0, 1], [2, 3]]),  # by falling cosine, no latent twice
        (W_DEC, [], 1, [[0, 1]]),
        (W_DEC, [], 0, []),
        (W_DEC, [2], 8, [[0, 1]]),
        (W_DEC, [0], 8, [[2, 3], [1, 4]]),  # 4's nearest is 1, for which there is room now
        (W_DEC, [1], 8, [[2, 3]]),  # 0's and 4's nearest, which are not alike
        (NEAR, [1], 8, [[0, 2]]),  # 1 is nearer to both, but rare
        (W_DEC, [0, 1, 2, 3, 4], 8, []),
        (torch.eye(6), [], 8, []),
        (WEAK, [], 8, []),
    ],
)
def test_the_most_alike_pairs_fire_and_share_no_latent(
    W_dec: torch.Tensor, rare: list[int], most: int, pairs: list[list[int]]
) -> None:
    times_fired = torch.full((6,), 100)
    times_fired[rare] = 5  # fewer than the tokens that are shown
    found = most_alike(W_dec, times_fired, most=most)
    assert found.tolist() == pairs


@pytest.mark.parametrize(("most", "pairs"), [(8, [[1, 2], [3, 4]]), (1, [[1, 2]]), (0, [])])
def test_pairs_that_fire_together_most_share_no_latent(most: int, pairs: list) -> None:
    acts = torch.zeros(40, 8)
    # 0 fires least, with 1, whose partner is 2; 5 and 6 are too rare, 7 is with none enough.
    spans = [(10, 20), (10, 30), (10, 30), (30, 40), (32, 40), (0, 5), (0, 5), (0, 8)]
    for latent, (first, end) in enumerate(spans):
        acts[first:end, latent] = 1
    assert most_together(co_firing([acts]), most).tolist() == pairs


def test_a_latent_is_shown_by_its_highest_activations_each_of_another_row() -> None:
    acts = torch.zeros(40, 6)
    fires = [0, 4, 5, 6, 8, 12, 16, 20, 24, 28]  # on three tokens of the second row
    acts[fires, 2] = torch.tensor([3.0, 7.5, 8, 7.5, 1, 7, 5, 2, 6, 4])
    silent, latent = latents_in_context(planted_sae(torch.eye(6)), text_of(acts), [5, 2])
    assert (latent.index, latent.tokens.tolist()) == (2, fires)
    assert [token.activation for token in latent.top_tokens] == [8, 7, 6, 5, 4, 3]
    assert [token.token for token in latent.top_tokens][:3] == ["w6", "w13", "w25"]
    assert (silent.index, len(silent.tokens), silent.top_tokens) == (5, 0, [])


@pytest.mark.parametrize(
    ("position", "per_row", "before", "after"),
    [
        (9, 20, "w4 w5 w6 w7 w8 w9", "w11 w12 w13 w14 w15 w16"),
        (0, 4, "", "w2 w3 w4"),
        (3, 4, "w1 w2 w3", ""),
    ],
)
def test_a_token_stands_between_others(
    position: int, per_row: int, before: str, after: str
) -> None:
    acts = torch.zeros(20, 6)
    acts[position, 0] = 1.0
    text = text_of(acts, tokens_of_a_row=per_row)
    [latent] = latents_in_context(planted_sae(torch.eye(6)), text, [0])
    [token] = latent.top_tokens
    found = (token.before, token.token, token.after)
    assert found == (before, f"w{position + 1}", after)


def test_latents_that_fire_negatively_fire() -> None:
    acts = torch.zeros(12, 2)
    acts[[0, 4], 0] = torch.tensor([-3.0, 2.0])
    sae = planted_sae(torch.eye(2))
    sae.encode = lambda inputs: inputs  # type: ignore[method-assign]
    (latent,) = latents_in_context(sae, text_of(acts), [0])
    assert latent.tokens.tolist() == [0, 4]
    assert [token.activation for token in latent.top_tokens] == [-3, 2]


def test_the_pairs_of_an_sae_have_their_cosine_and_their_tokens() -> None:
    acts = torch.zeros(40, 6)
    acts[:16, 0] = 1.0
    acts[12:20, 1] = 2.0
    acts[:, 2:4] = 1.0
    wanted = torch.tensor([[0, 1], [2, 3], [5, 5]])
    pairs = pairs_in_context(planted_sae(W_DEC), text_of(acts), wanted)
    assert [pair.cosine for pair in pairs] == pytest.approx([0.9, 0.6, 1], abs=1e-5)
    assert [[latent.index for latent in pair.latents] for pair in pairs] == wanted.tolist()
    times_fired = [[len(latent.tokens) for latent in pair.latents] for pair in pairs]
    assert times_fired == [[16, 8], [40, 40], [0, 0]]
    assert [pair.times_fired_together for pair in pairs] == [4, 40, 0]
    assert [pair.jaccard for pair in pairs] == [4 / 20, 1, 0]
    assert pairs_in_context(planted_sae(W_DEC), text_of(acts), wanted[:0]) == []
