"""What holds for every architecture of ours, in SAELens's own hands."""

import copy
import json
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sae_lens import SAE, TrainingSAE
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY

from sae_lens_c2r.saes.encoding import encode_in_saelens_alone
from tests import properties
from tests.architectures.training import (
    D_IN,
    backbone_of,
    hierarchy,
    make_sae,
    make_trainer,
    noise,
    penalties_of,
    step_input,
)
from tests.saes.forms import FORMS
from tests.strategies import ARCHITECTURES, WITH_C2R, c2r_options

EVERY = pytest.mark.parametrize("architecture", ARCHITECTURES)
EVERY_C2R = pytest.mark.parametrize("architecture", WITH_C2R)
MODES = ["none", "expected_average_only_in", "layer_norm", "constant_norm_rescale"]
BATCHTOPK = ("batchtopk_c2r", "matryoshka_batchtopk_c2r", "ort", "ort_c2r")
INFERENCE_FORM = {f"{form}_c2r": form for form in FORMS} | dict.fromkeys(BATCHTOPK, "jumprelu")


def losses_of(architecture: str) -> list[str]:
    """The names of our losses that an architecture has."""
    return [f"{name}_loss" for name in penalties_of(architecture)]


def test_no_registered_architecture_is_missing_here() -> None:
    ours = {
        name
        for name, (sae_class, _) in SAE_TRAINING_CLASS_REGISTRY.items()
        if sae_class.__module__.startswith("sae_lens_c2r.")
    }
    assert ours == ARCHITECTURES.keys() == INFERENCE_FORM.keys()


@EVERY_C2R
@settings(max_examples=settings().max_examples // 5)
@given(options=c2r_options, step=st.integers(0, 12), data=st.data())
def test_loss_of_a_step_is_that_of_the_equations(
    architecture: str, options: dict[str, Any], step: int, data: st.DataObject
) -> None:
    if architecture != "matryoshka_batchtopk_c2r":  # SAELens's own fails in the others
        options["normalize_activations"] = data.draw(st.sampled_from(MODES))
    sae = make_sae(architecture, **options)
    given_input = step_input(sae, step)
    if data.draw(st.booleans(), label="degenerate"):
        if sae.cfg.normalize_activations != "constant_norm_rescale":  # divides by the norms
            given_input.sae_in[: data.draw(st.integers(0, len(given_input.sae_in)))] = 0
        sae.W_dec.data[:3] = 0
        sae.W_dec.data[3:6] = sae.W_dec.data[6].clone()
    properties.step_follows_the_equations(sae, given_input)


@EVERY
def test_coefficient_0_trains_the_backbone_to_the_bit(architecture: str) -> None:
    *_, penalty = penalties_of(architecture)
    saes = {backbone_of(architecture): {}, architecture: {f"{penalty}_coefficient": 0.0}}
    trained = []
    for name, options in saes.items():
        sae = make_sae(name, seed=3, **options)
        make_trainer(sae, 12, noise(), dead_feature_window=3).fit()
        trained.append(sae.state_dict())
    assert trained[0].keys() == trained[1].keys()
    assert all(torch.equal(trained[0][name], trained[1][name]) for name in trained[0])


@EVERY
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_in_the_data_ruins_what_it_ruins_in_the_backbone(
    architecture: str, value: float
) -> None:
    """A penalty neither hides it nor spreads it."""
    batch = next(noise())
    batch[3, 5] = value
    ruined = []
    for name in (architecture, backbone_of(architecture)):
        sae = make_sae(name)
        loss = make_trainer(sae, 2, noise()).step(batch).loss
        assert not loss.isfinite()
        ruined.append(
            {k: (~each.isfinite()).sum().item() for k, each in sae.named_parameters()}
        )
    assert ruined[0] == ruined[1]


@EVERY
def test_penalty_is_the_same_after_folding_the_decoder_norms(architecture: str) -> None:
    if architecture == "matching_pursuit_c2r":
        # SAELens refuses: folding would change which latents Matching Pursuit chooses.
        with pytest.raises(NotImplementedError, match="not safe for MatchingPursuit"):
            make_sae(architecture).fold_W_dec_norm()
        return
    sae = make_sae(architecture)
    folded = copy.deepcopy(sae)
    folded.fold_W_dec_norm()
    losses = sae.training_forward_pass(step_input(sae)).losses
    folded_losses = folded.training_forward_pass(step_input(folded)).losses
    for name in losses_of(architecture):
        torch.testing.assert_close(losses[name], folded_losses[name])


@EVERY
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_every_precision_of_sae_lens_has_finite_losses_and_gradients(
    architecture: str, dtype: str
) -> None:
    sae = make_sae(architecture, dtype=dtype)
    output = sae.training_forward_pass(step_input(sae))
    output.loss.backward()
    assert all(loss.isfinite() for loss in output.losses.values())
    assert all(p.grad.isfinite().all() for p in sae.parameters() if p.grad is not None)


@EVERY
def test_autocast_leaves_the_penalties_in_full_precision(architecture: str) -> None:
    """The activations themselves are of lower precision then: what is made of them is not."""
    sae = make_sae(architecture)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = sae.training_forward_pass(step_input(sae))
    outside = sae._penalty_losses(step_input(sae), inside.feature_acts)
    assert outside.keys() == set(losses_of(architecture))
    for name, loss in outside.items():
        assert inside.losses[name].dtype == torch.float32
        assert torch.equal(inside.losses[name], loss)


TOPK_FAMILY = ["abstopk_c2r", "batchtopk_c2r", "ort", "ort_c2r", "topk_c2r"]


@pytest.mark.parametrize("architecture", TOPK_FAMILY)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_losses_grow_alike_with_the_scale_of_the_inputs(
    architecture: str, mode: str, exponent: float
) -> None:
    """Inputs s times as large: reconstruction costs s^2 times as much, and so do penalties."""
    options = {"c2r_exponent": exponent} if architecture in WITH_C2R else {}
    sae = make_sae(architecture, normalize_activations=mode, **options)
    small = step_input(sae)
    large = step_input(sae, sae_in=100 * small.sae_in)
    small_losses = sae.training_forward_pass(small).losses
    large_losses = sae.training_forward_pass(large).losses
    for name in ["mse_loss", *losses_of(architecture)]:
        torch.testing.assert_close(
            large_losses[name], 1e4 * small_losses[name], rtol=1e-3, atol=0
        )


def why_not(architecture: str, mode: str) -> type[Exception] | None:
    """What is raised when an architecture trains in a mode, if it cannot."""
    try:
        make_trainer(make_sae(architecture, normalize_activations=mode), 8, noise()).fit()
    except (ValueError, AttributeError) as error:
        return type(error)
    return None


@EVERY
@pytest.mark.parametrize("mode", [*MODES, "covariance_whitening"])
def test_trains_in_every_mode_of_normalization_that_its_backbone_trains_in(
    architecture: str, mode: str, tmp_path: Path
) -> None:
    refusal = why_not(backbone_of(architecture), mode)
    if refusal is not None:
        assert why_not(architecture, mode) == refusal
        return
    sae = make_sae(architecture, normalize_activations=mode)
    make_trainer(sae, 8, noise()).fit()
    assert all(parameter.isfinite().all() for parameter in sae.parameters())
    if mode in ("expected_average_only_in", "covariance_whitening"):
        assert sae.cfg.normalize_activations == "none", "SAELens folds it when training ends"
    sae.save_inference_model(tmp_path)
    saved = SAE.load_from_disk(tmp_path)
    assert saved.cfg.architecture() == INFERENCE_FORM[architecture]
    sae_in = next(noise(seed=7))
    assert_close(saved.encode(sae_in), inference_acts(sae, sae_in))


@pytest.mark.parametrize("rescale", [True, False])
def test_sparse_activations_give_the_dense_loss(rescale: bool) -> None:
    options = {"rescale_acts_by_decoder_norm": rescale}
    dense, sparse = (
        make_sae("topk_c2r", use_sparse_activations=flag, **options) for flag in (False, True)
    )
    expected, found = (sae.training_forward_pass(step_input(sae)) for sae in (dense, sparse))
    assert found.feature_acts.is_sparse
    torch.testing.assert_close(found.losses["c2r_loss"], expected.losses["c2r_loss"])
    # Of the penalty alone: SAELens's own loss has no backward pass on a CPU when it rescales.
    for output in (expected, found):
        output.losses["c2r_loss"].backward()
    torch.testing.assert_close(sparse.W_enc.grad, dense.W_enc.grad)
    torch.testing.assert_close(sparse.W_dec.grad, dense.W_dec.grad)


@torch.no_grad()
def inference_acts(sae: TrainingSAE[Any], sae_in: torch.Tensor) -> torch.Tensor:
    """The activations of the inference form, by the trained SAE itself."""
    acts, hidden_pre = sae.encode_with_hidden_pre(sae_in)
    if hasattr(sae, "topk_threshold"):  # the BatchTopK family encodes by its threshold
        acts = torch.where(hidden_pre > sae.topk_threshold, hidden_pre.relu(), 0.0)
    return acts.to_dense()


assert_close = partial(torch.testing.assert_close, rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory,
    forked: None,  # noqa: ARG001
) -> dict[str, tuple[TrainingSAE[Any], Path, torch.Tensor]]:
    """Every architecture after 200 steps on a hierarchy, checkpointed and saved.

    With each is what a process without this package makes of it.
    """
    saes = []
    for architecture in ARCHITECTURES:
        sae, folder = make_sae(architecture), tmp_path_factory.mktemp(architecture)
        trainer = make_trainer(sae, 200, hierarchy())
        trainer.fit()
        trainer.save_checkpoint("checkpoint", base_path=folder)
        sae.save_inference_model(folder / "inference")
        saes.append((sae, folder))
    encoded = encode_in_saelens_alone(
        [(folder / "inference", next(hierarchy(seed=7))) for _, folder in saes]
    )
    return {
        name: (*each, alone)
        for name, each, alone in zip(ARCHITECTURES, saes, encoded, strict=True)
    }


@EVERY
def test_trained_on_a_hierarchy_it_is_restored_and_loads_without_us(
    architecture: str, trained: dict[str, tuple[TrainingSAE[Any], Path, torch.Tensor]]
) -> None:
    """It encodes alike and remembers how it was trained."""
    sae, folder, encoded_without_us = trained[architecture]
    sae_in = next(hierarchy())
    untrained = make_sae(architecture)
    before, after = (((s(sae_in) - sae_in) ** 2).mean() for s in (untrained, sae))
    assert after < before
    assert all(parameter.isfinite().all() for parameter in sae.parameters())
    loaded = TrainingSAE.load_from_disk(folder / "checkpoint")
    assert type(loaded) is type(sae)
    for field in fields(sae.cfg):
        if field.name != "metadata":
            assert getattr(loaded.cfg, field.name) == getattr(sae.cfg, field.name)
    state = dict(loaded.named_parameters())
    assert all(torch.equal(state[name], value) for name, value in sae.named_parameters())

    assert_close(encoded_without_us, inference_acts(sae, next(hierarchy(seed=7))))
    config = json.loads((folder / "inference" / "cfg.json").read_text())
    assert config["architecture"] == INFERENCE_FORM[architecture]
    metadata = config["metadata"]
    assert metadata["training_architecture"] == architecture
    for penalty in penalties_of(architecture):
        assert f"{penalty}_coefficient" in metadata["training_architecture_details"]


@pytest.mark.parametrize("architecture", TOPK_FAMILY)
@pytest.mark.parametrize("mode", ["layer_norm", "constant_norm_rescale"])
def test_normalization_by_the_sae_changes_no_loss_where_it_changes_no_direction(
    architecture: str, mode: str
) -> None:
    """Inputs of mean 0 and one norm: latents in other units, the same reconstruction."""
    sae_in = torch.randn(32, D_IN, generator=torch.Generator().manual_seed(0))
    sae_in -= sae_in.mean(dim=1, keepdim=True)
    sae_in *= 7 / sae_in.norm(dim=1, keepdim=True)
    losses = []
    for normalize in ("none", mode):
        sae = make_sae(architecture, normalize_activations=normalize)
        losses.append(sae.training_forward_pass(step_input(sae, sae_in=sae_in)).losses)
    for name in losses_of(architecture):
        rtol = 0.05 if mode == "layer_norm" else 1e-4  # it divides by an unbiased deviation
        torch.testing.assert_close(losses[1][name], losses[0][name], rtol=rtol, atol=0)


@EVERY
def test_every_log_shows_the_metrics_and_a_checkpoint_of_saelens_is_continued(
    architecture: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {}
    for name in penalties_of(architecture):
        options |= {f"{name}_chunk_size": 8, f"{name}_interval": 3, f"{name}_warm_up_steps": 10}
    batches = [batch for batch, _ in zip(noise(), range(14), strict=False)]
    whole = make_sae(architecture, **options)
    make_trainer(whole, 14, iter(batches)).fit()

    first = make_trainer(make_sae(architecture, **options), 7, iter(batches[:7]))
    first.fit()
    first.save_checkpoint("half", base_path=tmp_path)
    resumed = make_sae(architecture, seed=1, **options)
    second = make_trainer(resumed, 14, iter(batches[7:]))
    second.load_trainer_state(tmp_path / "half")
    resumed.load_weights_from_checkpoint(tmp_path / "half")
    second.fit()
    state = resumed.state_dict()
    assert all(torch.equal(state[name], value) for name, value in whole.state_dict().items())

    logged = second.build_train_step_log_dict(second.step(batches[0]), n_training_samples=0)
    for penalty in penalties_of(architecture):
        for metric in ("penalty", "effective_coefficient", "mean_max_cosine"):
            assert f"metrics/{penalty}_{metric}" in logged
        assert f"details/{penalty}_coefficient" in logged
