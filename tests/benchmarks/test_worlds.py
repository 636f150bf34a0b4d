"""The worlds that SAEs are trained in: their samples, and what an ideal SAE has in them."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from sae_lens import StandardSAE, StandardSAEConfig

from benchmarks.planted import world
from benchmarks.planted.world import FOUND, SHARE, World
from benchmarks.study.world import CHILDREN, REGIMES
from benchmarks.study.world import World as StudyWorld
from benchmarks.synth_sae_bench.world import Size
from sae_lens_c2r.analysis.recovery import Edge

TINY = Size("tiny", (32,), 4096, 4096, evaluation=4096)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Features planted into noise, which stands for what a transformer computes."""
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "text_activations", lambda *counts: map(noise, counts))
        found = World(TINY, tmp_path_factory.mktemp("samples"))
        found.generate(processes=1)
    return found


@pytest.mark.parametrize("name", REGIMES)
def test_children_imply_their_parents(name: str) -> None:
    planted = StudyWorld(REGIMES[name], seed=3)
    assert len(planted.edges) == REGIMES[name].n_features * CHILDREN // (1 + CHILDREN)
    present = planted.model.activation_generator(2000).bool()
    for parent, child in planted.edges:
        assert present[present[:, child], parent].all()


AXES = torch.randn(8, world.D_IN, generator=torch.Generator().manual_seed(123))


def noise(n_samples: int) -> torch.Tensor:
    """Text that varies along a few axes, which an encoder can be blind to."""
    return 1 + torch.randn(n_samples, len(AXES)) @ AXES


def sae_of_features(planted: World, *, absorbed: Sequence[Edge] = ()) -> StandardSAE:
    """A latent for each planted feature, read out exactly, and blind to the text.

    An absorbed child is taken from its parent's latent twice over.
    """
    vectors = planted.features.feature_vectors
    W_enc = torch.linalg.pinv(torch.cat([vectors, AXES]))[:, : len(vectors)].clone()
    for parent, child in absorbed:
        W_enc[:, parent] -= 2 * W_enc[:, child]
    config = StandardSAEConfig(
        d_in=world.D_IN, d_sae=len(vectors), apply_b_dec_to_input=True, device="cpu"
    )
    sae = StandardSAE(config)
    factor = float((planted.folder / "factor.txt").read_text())
    text = torch.from_numpy(np.load(planted.paths["held_out"]))
    with torch.no_grad():
        sae.W_dec.copy_(vectors)
        sae.W_enc.copy_(W_enc)
        sae.b_enc.fill_(-0.1 * factor)
        sae.b_dec.copy_(text.mean(dim=0))
    return sae


def test_the_planted_features_have_their_share_of_the_variance(planted: World) -> None:
    text, features = (np.load(planted.paths[name]) for name in ("text", "planted"))
    of_text, of_features = text.var(axis=0).sum(), features.var(axis=0).sum()
    assert of_features / (of_text + of_features) == pytest.approx(SHARE, rel=0.02)
    assert np.linalg.norm(text, axis=1).mean() == pytest.approx(world.D_IN**0.5, rel=1e-4)


def test_a_latent_for_each_feature_absorbs_nothing_and_a_silent_one_all(
    planted: World,
) -> None:
    whole = planted.evaluate(sae_of_features(planted))
    absorbed = planted.evaluate(sae_of_features(planted, absorbed=planted.edges))
    for found in (whole, absorbed):
        assert found["cosine_with_features"] == pytest.approx(1)
        assert found["features_found"] == found["parents_found"] == found["split"] == 1
        assert found["children_found"] == 1
        assert found["absorption_by_found_children"] == found["absorption"]
    assert whole["absorption"] == pytest.approx(0, abs=1e-3)
    assert absorbed["absorption"] == pytest.approx(1, abs=1e-3)
    # It has the planted features but for what the bias takes of each, and none of the text.
    assert 0.2 * SHARE < whole["explained_variance"] < 1.1 * SHARE
    assert whole["real_explained_variance"] == pytest.approx(0, abs=1e-3)


def test_children_that_are_not_found_tell_nothing_of_what_others_absorb(
    planted: World,
) -> None:
    absorbed, lost = planted.edges[::2], planted.edges[1::4]  # one child of each parent
    sae = sae_of_features(planted, absorbed=absorbed)
    vectors = planted.features.feature_vectors
    with torch.no_grad():
        for parent, child in lost:
            sae.W_dec[child] = torch.randn(world.D_IN)
            sae.W_dec[parent] += 0.7 * vectors[child]  # the parent's latent is no child's
            cosine = torch.cosine_similarity(sae.W_dec[parent], vectors[child], dim=0)
            assert cosine > FOUND
    found = planted.evaluate(sae)
    of_edges = found["absorption_of_edges"]
    assert [each is None for each in of_edges] == [edge in lost for edge in planted.edges]
    assert found["children_found"] == 0.75
    assert found["absorption"] == pytest.approx(1 / 2, abs=1e-2)
    assert found["absorption_by_found_children"] == pytest.approx(2 / 3, abs=1e-2)
