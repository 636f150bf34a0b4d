"""The worlds that SAEs are trained in: their samples, and what an ideal SAE has in them."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from sae_lens import StandardSAE

from benchmarks.worlds import language_model, minilm_text, planted
from benchmarks.worlds.minilm_text import D_IN
from benchmarks.worlds.planted import SHARE, Planted
from sae_lens_c2r.analysis.recovery import Edge
from tests.inspection.planted import planted_sae

AXES = torch.randn(8, D_IN, generator=torch.Generator().manual_seed(123))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Features planted into noise along a few axes, which an encoder can be blind to."""

    def noise(n_samples: int) -> torch.Tensor:
        return 1 + torch.randn(n_samples, len(AXES)) @ AXES

    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minilm_text, "text_activations", lambda *counts: map(noise, counts))
        [size] = planted.SIZES["quick"]
        found = Planted(size.runs()[0], tmp_path_factory.mktemp("samples"))
        found.prepare()
    return found


def sae_of_features(world: Planted, *, absorbed: Sequence[Edge] = ()) -> StandardSAE:
    """A latent for each planted feature, read out exactly, and blind to the text.

    An absorbed child is taken from its parent's latent twice over.
    """
    vectors = world.forest.features.feature_vectors
    W_enc = torch.linalg.pinv(torch.cat([vectors, AXES]))[:, : len(vectors)].clone()
    for parent, child in absorbed:
        W_enc[:, parent] -= 2 * W_enc[:, child]
    sae = planted_sae(vectors)
    sae.W_enc.data = W_enc
    sae.b_enc.data.fill_(-0.1 * float(world.factor.read_text()))
    sae.b_dec.data = torch.from_numpy(np.load(world.held_out)).mean(dim=0)
    return sae


def test_the_planted_features_have_their_share_of_the_variance(world: Planted) -> None:
    pools = world.text, world.planted
    of_text, of_features = (np.load(path).var(axis=0).sum() for path in pools)
    assert of_features / (of_text + of_features) == pytest.approx(SHARE, rel=0.02)
    norms = np.linalg.norm(np.load(world.text), axis=1)
    assert norms.mean() == pytest.approx(D_IN**0.5, rel=1e-4)


def test_a_latent_for_each_feature_absorbs_nothing_and_a_silent_one_all(world: Planted) -> None:
    whole = world.evaluate(sae_of_features(world))
    absorbed = world.evaluate(sae_of_features(world, absorbed=world.edges))
    for found in (whole, absorbed):
        assert found["features_found"] == found["parents_found"] == found["split"] == 1
        assert found["absorption_by_found_children"] == found["absorption"]
    assert whole["absorption"] == pytest.approx(0, abs=1e-3)
    assert absorbed["absorption"] == pytest.approx(1, abs=1e-3)
    # It has the planted features but for what the bias takes of each, and none of the text.
    assert 0.2 * SHARE < whole["explained_variance"] < 1.1 * SHARE
    assert whole["real_explained_variance"] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("absorbs", [False, True])
def test_letters_are_absorbed_where_a_words_latent_has_taken_over(absorbs: bool) -> None:
    """Two letters, and ten words of the first with a direction of their own."""
    random = torch.Generator().manual_seed(0)
    letters = (torch.randperm(1000, generator=random) % 2).long()
    special = torch.arange(900, 1000)[letters[900:] == 0][:10]
    directions = torch.eye(16)
    inputs = directions[letters] + 0.01 * torch.randn(1000, 16, generator=random)
    inputs[special] += 2 * directions[2:12]
    sae = planted_sae(directions[:12])
    sae.b_enc.data.fill_(-0.5)
    if absorbs:
        sae.W_dec.data[2:] += directions[0]
        sae.W_enc.data[2:12, 0] = -2
    found = language_model.letter_measures(sae, inputs, letters)
    share = 10 / int((letters[800:] == 0).sum()) / 2 if absorbs else 0
    assert (found["letters"], found["letter_latents"], found["probe_f1"]) == (2, 1, 1)
    assert found["silent"] == found["full_absorption"] == pytest.approx(share)
    assert found["absorption_fraction"] == pytest.approx(share)
    assert (found["letter_f1"] == 1) == (not absorbs)
