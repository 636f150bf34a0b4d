"""The worlds that SAEs are trained in: their samples, and what an ideal SAE has in them."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from sae_lens import StandardSAE
from sae_lens.load_model import HookedProxyLM
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.classes import class_measures
from benchmarks.worlds import minilm_text, planted
from benchmarks.worlds.language_model import FIRST_TOKENS, HOOK_NAME, classes_of, loss_on
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
        found = Planted(size.runs()[0], tmp_path_factory.mktemp("samples"), "cpu")
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
    found = class_measures(sae, inputs, letters, enough=0.6)
    share = 10 / int((letters[800:] == 0).sum()) / 2 if absorbs else 0
    assert (found["counted"], found["latents"], found["probe_f1"]) == (2, 1, 1)
    assert found["silent"] == found["full_absorption"] == pytest.approx(share)
    assert found["absorption_fraction"] == pytest.approx(share)
    assert (found["f1"] == 1) == (not absorbs)


def test_tokens_have_the_classes_that_they_are_written_like() -> None:
    names = ["Ġ7", "(", "ĠThe", "Ġwas", "ĠI", "'t", "ing", "ĠUS", "ĠMay", "Ġword", "Ġ", "the"]
    before = [10] * 6 + [4, 10, 10, 10, 10, 1]  # "ing" after a letter, "the" after "("
    rows = torch.stack([torch.tensor(before), torch.arange(12)], dim=1)
    assert classes_of(rows, names)[:, 1].tolist() == [*range(1, 7), 0, -1, -1, -1, -1, 3]


def test_the_loss_is_that_of_a_model_some_of_whose_activations_are_replaced() -> None:
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = LlamaConfig(**shape, vocab_size=50, num_hidden_layers=11, use_cache=False)
    model = LlamaForCausalLM(config).eval()
    rows = torch.randint(50, (8, 12))
    used = torch.rand(rows.shape) < 0.5
    hooked = HookedProxyLM(model, None, [HOOK_NAME])  # type: ignore[arg-type]
    found = loss_on(hooked, rows, used, lambda found: 1 - found)
    untouched = loss_on(hooked, rows, used, lambda found: found)

    def replace(_module: object, _inputs: object, output: torch.Tensor) -> torch.Tensor:
        return torch.where(used[..., None], 1 - output, output)

    for expected in (untouched, found):
        logits = model(rows).logits[:, FIRST_TOKENS:-1]
        loss = cross_entropy(logits.flatten(end_dim=1), rows[:, FIRST_TOKENS + 1 :].flatten())
        assert expected == pytest.approx(loss.item(), rel=1e-5)
        model.model.layers[9].register_forward_hook(replace)
    assert abs(found - untouched) > 1e-3 * untouched
