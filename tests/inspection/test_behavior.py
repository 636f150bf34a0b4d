"""What an SAE does on text is what plain loops over the tokens find."""

import pytest
import torch

from sae_lens_c2r.inspection import activations
from sae_lens_c2r.inspection.activations import encode
from sae_lens_c2r.inspection.behavior import PAIRS_SHOWN, Reconstruction, observe, reconstruct
from tests.architectures.training import D_IN, make_sae
from tests.inspection.planted import Words, firing, planted_sae, text_of
from tests.strategies import ARCHITECTURES


def random_text(n_tokens: int = 30, d_in: int = D_IN) -> torch.Tensor:
    return torch.randn(n_tokens, d_in, generator=torch.Generator().manual_seed(0))


def planted() -> torch.Tensor:
    """Activations of four latents on 80 tokens: 1 fires where 0 would, 3 never."""
    acts = torch.zeros(80, 4)
    acts[:40, 0] = torch.linspace(1, 2, 40)
    acts[40:60, 1] = 1.5
    acts[::2, 2] = 1.0
    return acts


def decoder() -> torch.Tensor:
    rows = torch.eye(4)
    rows[1] = torch.tensor([0.5, 0.75**0.5, 0, 0])
    return rows


def test_every_token_is_counted_and_reconstructed() -> None:
    sae = planted_sae(torch.randn(D_IN, D_IN), like_inputs=False)
    inputs = random_text()
    found = reconstruct(sae, text_of(inputs))
    times_fired = [0] * D_IN
    residual = 0.0
    for row in inputs:
        acts = torch.relu(row @ sae.W_enc).detach()
        for latent, act in enumerate(acts.tolist()):
            times_fired[latent] += act != 0
        output = sum(act * sae.W_dec[latent].detach() for latent, act in enumerate(acts))
        residual += (row - output).square().sum().item()
    total = (inputs - inputs.mean(dim=0)).square().sum().item()
    assert found.times_fired.tolist() == times_fired
    assert found.n_tokens == len(inputs)
    assert found.explained_variance == pytest.approx(1 - residual / total, rel=1e-4)
    assert found.l0 == pytest.approx(sum(times_fired) / len(inputs))
    assert found.frequencies.tolist() == pytest.approx(
        [times / len(inputs) for times in times_fired]
    )


def test_latents_that_never_fire_are_dead() -> None:
    found = Reconstruction(0.5, firing([3, 0, 10, 0], 10))
    assert (found.dead, found.l0) == (2, 1.3)
    assert found.frequencies.tolist() == pytest.approx([0.3, 0, 1, 0])


def test_a_perfect_reconstruction_explains_all_variance() -> None:
    found = reconstruct(planted_sae(torch.eye(D_IN)), text_of(random_text().abs()))
    assert found.explained_variance == pytest.approx(1)
    assert found.dead == 0


@pytest.mark.parametrize("tokens_per_batch", [1, 7, 30])
def test_batches_do_not_change_what_is_found(
    tokens_per_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sae = make_sae("topk_c2r")
    text = text_of(random_text())
    whole = reconstruct(sae, text)
    monkeypatch.setattr(activations, "_TOKENS_PER_BATCH", tokens_per_batch)
    sizes = [len(inputs) for inputs, _ in encode(sae, text)]
    assert max(sizes) == tokens_per_batch
    assert sum(sizes) == 30
    found = reconstruct(sae, text)
    assert torch.equal(found.times_fired, whole.times_fired)
    assert found.explained_variance == pytest.approx(whole.explained_variance, rel=1e-5)
    assert torch.equal(found.co_firing.highest, whole.co_firing.highest)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_any_architecture_is_measured_in_its_training_form(architecture: str) -> None:
    sae = make_sae(architecture)
    found = observe(sae, text_of(random_text()), Words())
    assert found.explained_variance < 1
    assert found.times_fired.shape == (sae.cfg.d_sae,)
    assert len(found.pairs) <= PAIRS_SHOWN


def test_sparse_activations_are_those_of_the_dense_form() -> None:
    dense, sparse = (
        make_sae("batchtopk_c2r", use_sparse_activations=sparse) for sparse in (False, True)
    )
    text = text_of(random_text())
    for (_, expected), (_, found) in zip(
        encode(dense, text), encode(sparse, text), strict=True
    ):
        assert not found.is_sparse
        torch.testing.assert_close(found, expected)


def test_inputs_are_encoded_in_the_type_of_the_sae() -> None:
    sae = planted_sae(torch.eye(4)).to(torch.bfloat16)
    ((inputs, acts),) = encode(sae, text_of(random_text(8, 4)))
    assert (inputs.dtype, acts.dtype) == (torch.bfloat16, torch.bfloat16)
    assert not acts.requires_grad


def test_what_is_observed_has_the_pairs_and_their_tokens() -> None:
    found = observe(planted_sae(decoder()), text_of(planted()), Words())
    (pair,) = found.pairs
    assert [latent.index for latent in pair.latents] == [0, 1]
    assert [latent.times_fired for latent in pair.latents] == [40, 20]
    assert pair.cosine == pytest.approx(0.5)
    assert pair.times_fired_together == 0
    assert pair.latents[0].top_tokens[0].token == "w40"


def test_what_is_observed_has_the_latent_that_fires_in_anothers_place() -> None:
    acts = planted()
    found = observe(planted_sae(decoder()), text_of(acts), Words()).absorption
    assert (found.parents.tolist(), found.children.tolist()) == ([0], [1])
    assert found.cosines.tolist() == pytest.approx([0.5])
    assert found.A.tolist() == pytest.approx([acts[:, 0].square().sum().item()])
    assert found.B.tolist() == pytest.approx([20 * 1.5**2 * 0.75], rel=1e-5)
    assert found.alpha.tolist() == pytest.approx([1])  # the parent is silent there


def test_what_is_observed_has_what_fires_together() -> None:
    """Of the three live latents 2 fires on half of the tokens of 0 and of 1."""
    acts = planted()
    found = observe(planted_sae(decoder()), text_of(acts), Words()).co_firing
    assert found.highest.tolist() == pytest.approx([20 / 60, 10 / 50, 20 / 60, 0])
    assert found.mean == pytest.approx((20 / 60 + 10 / 50 + 20 / 60) / 3)
    assert found.pairs == {0.5: 0, 0.7: 0, 0.9: 0}


def test_what_is_observed_includes_the_reconstruction() -> None:
    sae, text = planted_sae(decoder()), text_of(planted())
    found, alone = observe(sae, text, Words()), reconstruct(sae, text)
    assert found.n_tokens == alone.n_tokens == 80
    assert found.explained_variance == alone.explained_variance
    assert found.times_fired.tolist() == [40, 20, 40, 0]
    assert found.dead == 1
