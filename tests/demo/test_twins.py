"""What became of two latents that are alike: merged, apart, and firing together or not."""

import pytest
import torch
from torch import Tensor

from sae_lens_c2r.demo.twins import Kind, Twins, find_twins, kind_of
from tests.inspection.planted import planted_sae, text_of

# Four pairs of twins, and the last latent, a twin of the first, which never fires.
PLAIN = torch.zeros(9, 9)
for pair in range(4):
    PLAIN[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = torch.tensor([[1, 0], [0.8, 0.6]])
PLAIN[8, 0] = 1.0


def turned() -> Tensor:
    """Of the first pair one latent is left, the next two are turned apart, the last is not."""
    rows = PLAIN.clone()
    rows[0, :2], rows[1], rows[8] = torch.tensor([0.9, 0.3]), torch.eye(9)[8], torch.eye(9)[8]
    for first in (2, 4):
        columns = slice(first, first + 2)
        rows[columns, columns] = torch.tensor([[0.9, -0.4], [0.5, 0.9]])
    return rows


def firing() -> Tensor:
    """The third pair fires on one of its tokens together, the others on all of them."""
    acts = torch.zeros(20, 9)
    for latent in range(8):
        acts[4 * (latent // 2) : 4 * (latent // 2) + 4, latent] = 1.0
    acts[9:12, 5] = 0.0
    acts[16:19, 8] = 1.0  # in the other SAE it fires
    return acts


def found() -> Twins:
    fires = torch.ones(9, dtype=torch.bool)
    silent = fires.clone()
    silent[8] = False
    saes = planted_sae(PLAIN), planted_sae(turned())
    return find_twins(*saes, text_of(firing()), fires=silent, other_fires=fires)


def test_every_pair_is_of_its_kind() -> None:
    assert found().kinds == ["merged", "apart and firing together", "apart", "still alike"]


def test_pairs_have_their_jaccard_before_and_after() -> None:
    assert found().before.tolist() == [1, 1, 0.25, 1]
    assert found().after.tolist() == [1, 1, 0.25, 1]
    assert found().summary() == {
        "pairs": 4,
        "merged": 1,
        "apart_and_firing_together": 1,
        "apart": 1,
        "still_alike": 1,
        "jaccard_before": 3.25 / 4,
        "jaccard_of_two_after": 2.25 / 3,
    }


def test_the_sentence_counts_them() -> None:
    assert found().sentence("a", "b") == (
        "Of 4 pairs of latents of a with a cosine above 0.7, b has 1 merged into one latent, "
        "1 apart and firing together (Jaccard above 0.5), 1 apart, 1 still alike. Their mean "
        "Jaccard was 0.81; where there are two latents now, it is 0.75."
    )


def test_without_pairs_there_is_no_mean() -> None:
    none = torch.zeros(9, dtype=torch.bool)
    sae = planted_sae(PLAIN)
    twins = find_twins(sae, sae, text_of(firing()), fires=none, other_fires=~none)
    assert twins.summary()["jaccard_before"] is None
    assert twins.sentence("a", "b").endswith(" 0 apart, 0 still alike.")


@pytest.mark.parametrize(
    ("one", "cosine", "jaccard", "kind"),
    [
        (True, 1.0, 1.0, "merged"),
        (False, 0.71, 1.0, "still alike"),
        (False, 0.7, 0.51, "apart and firing together"),
        (False, 0.7, 0.5, "apart"),
    ],
)
def test_kinds_by_their_thresholds(
    one: bool, cosine: float, jaccard: float, kind: Kind
) -> None:
    assert kind_of(one=one, cosine=cosine, jaccard=jaccard) == kind
