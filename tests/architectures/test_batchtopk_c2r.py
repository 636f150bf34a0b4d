"""`batchtopk_c2r` in SAELens's own training step, trainer, checkpoints and saved form."""

import copy
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from sae_lens import (
    BatchTopKTrainingSAE,
    BatchTopKTrainingSAEConfig,
    JumpReLUSAE,
    LoggingConfig,
    SAETrainer,
    TrainingSAE,
)
from sae_lens.config import SAETrainerConfig
from sae_lens.saes.sae import TrainStepInput, TrainStepOutput

from sae_lens_c2r import (
    BatchTopKC2RTrainingSAE,
    BatchTopKC2RTrainingSAEConfig,
    c2r_penalty,
)
from sae_lens_c2r.demo.reload import encode_without_us
from sae_lens_c2r.penalties import step_generator, transfer_factor, typical_norm

D_IN, D_SAE, BATCH = 16, 64, 32


def config(**options: Any) -> BatchTopKC2RTrainingSAEConfig:
    return BatchTopKC2RTrainingSAEConfig(d_in=D_IN, d_sae=D_SAE, k=4, **options)


def make_sae(**options: Any) -> BatchTopKC2RTrainingSAE:
    torch.manual_seed(0)
    sae = BatchTopKC2RTrainingSAE(config(**options))
    sae.W_dec.data.mul_(torch.rand(D_SAE, 1) + 0.5)
    return sae


def step_input(step: int, *, coefficient: float = 5.0, logging: bool = False) -> TrainStepInput:
    sae_in = 3 * torch.randn(BATCH, D_IN, generator=torch.Generator().manual_seed(step))
    return TrainStepInput(
        sae_in=sae_in,
        coefficients={"c2r": coefficient},
        dead_neuron_mask=None,
        n_training_steps=step,
        is_logging_step=logging,
    )


def data() -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    while True:
        yield torch.randn(BATCH, D_IN, generator=generator)


def trainer(sae: TrainingSAE[Any], steps: int, provider: Iterator[torch.Tensor]) -> SAETrainer:
    return SAETrainer(
        cfg=SAETrainerConfig(
            n_checkpoints=0,
            checkpoint_path=None,
            save_final_checkpoint=False,
            total_training_samples=steps * BATCH,
            device="cpu",
            autocast=False,
            lr=1e-2,
            lr_end=1e-2,
            lr_scheduler_name="constant",
            lr_warm_up_steps=0,
            adam_beta1=0.9,
            adam_beta2=0.999,
            lr_decay_steps=0,
            n_restart_cycles=1,
            train_batch_size_samples=BATCH,
            dead_feature_window=5,
            feature_sampling_window=100,
            logger=LoggingConfig(log_to_wandb=False),
        ),
        sae=sae,
        data_provider=provider,
    )


class TestLoss:
    """Eq. (26): every T-th step adds T * lambda_eff * penalty to the backbone's loss."""

    def test_is_added_at_every_interval_th_step(self) -> None:
        sae = make_sae(c2r_interval=5)
        penalized = [
            step
            for step in range(12)
            if "c2r_loss" in sae.training_forward_pass(step_input(step)).losses
        ]
        assert penalized == [0, 5, 10]

    @pytest.mark.parametrize("rescale", [True, False])
    @pytest.mark.parametrize("scaling", ["transfer", "none"])
    def test_is_the_penalty_times_interval_and_effective_coefficient(
        self, scaling: str, rescale: bool
    ) -> None:
        options = {"c2r_chunk_size": 16, "c2r_interval": 3, "c2r_exponent": 1.5, "c2r_seed": 7}
        sae = make_sae(**options, c2r_scaling=scaling, rescale_acts_by_decoder_norm=rescale)
        given = step_input(6, coefficient=2.0)
        output = sae.training_forward_pass(given)

        norms = 1 if rescale else sae.W_dec.norm(dim=1)
        penalty = c2r_penalty(
            output.feature_acts * norms,
            sae.W_dec,
            chunk_size=16,
            exponent=1.5,
            generator=step_generator(7, 6),
        )
        factor = transfer_factor(batch_size=BATCH, d_sae=D_SAE, d_in=D_IN, chunk_size=16)
        scale = factor * typical_norm(given.sae_in) if scaling == "transfer" else 1.0
        torch.testing.assert_close(output.losses["c2r_loss"], 3 * 2.0 * scale * penalty)
        torch.testing.assert_close(output.loss, sum(output.losses.values()))

    def test_penalizes_alike_before_and_after_folding_the_decoder_norms(self) -> None:
        sae = make_sae(rescale_acts_by_decoder_norm=True)
        folded = copy.deepcopy(sae)
        folded.fold_W_dec_norm()
        loss, folded_loss = (
            s.training_forward_pass(step_input(0)).losses["c2r_loss"] for s in (sae, folded)
        )
        torch.testing.assert_close(loss, folded_loss)

    def test_with_transfer_scaling_all_losses_grow_alike_with_the_scale_of_the_inputs(
        self,
    ) -> None:
        """Inputs s times as large: reconstruction costs s^2 times as much, and so does C2R."""
        small, large = step_input(0), step_input(0)
        large.sae_in = 100 * large.sae_in
        sae = make_sae()
        small_losses = sae.training_forward_pass(small).losses
        large_losses = sae.training_forward_pass(large).losses
        for name in ("mse_loss", "c2r_loss"):
            torch.testing.assert_close(large_losses[name], 1e4 * small_losses[name])

    def test_gradients_reach_encoder_and_decoder(self) -> None:
        sae = make_sae()
        sae.training_forward_pass(step_input(0)).losses["c2r_loss"].backward()
        assert sae.W_enc.grad.abs().sum() > 0
        assert sae.W_dec.grad.abs().sum() > 0


class TestCoefficient:
    def test_is_warmed_up_by_sae_lens(self) -> None:
        sae = make_sae(c2r_coefficient=8.0, c2r_warm_up_steps=4)
        training = trainer(sae, 6, data())
        seen = []
        for _ in range(6):
            seen.append(training.get_coefficients()["c2r"])
            training.step(next(data()))
            training.n_training_steps += 1
        assert seen == [0.0, 2.0, 4.0, 6.0, 8.0, 8.0]

    def test_zero_trains_the_backbone_to_the_bit(self) -> None:
        torch.manual_seed(3)
        plain = BatchTopKTrainingSAE(BatchTopKTrainingSAEConfig(d_in=D_IN, d_sae=D_SAE, k=4))
        torch.manual_seed(3)
        regularized = BatchTopKC2RTrainingSAE(config(c2r_coefficient=0.0))
        for sae in (plain, regularized):
            torch.manual_seed(4)
            trainer(sae, 12, data()).fit()
        state, expected = regularized.state_dict(), plain.state_dict()
        assert state.keys() == expected.keys()
        assert all(torch.equal(state[name], expected[name]) for name in expected)

    def test_makes_the_decoder_less_redundant(self) -> None:
        from sae_lens_c2r import composition

        compositions = []
        for coefficient in (0.0, 5.0):
            sae = make_sae(c2r_coefficient=coefficient)
            sae.W_dec.data[1] = sae.W_dec.data[0]
            trainer(sae, 100, data()).fit()
            compositions.append(composition(sae.W_dec))
        assert compositions[1] < compositions[0]


class TestMetrics:
    NAMES = ("c2r_penalty", "c2r_effective_coefficient", "c2r_mean_max_cosine")

    def test_every_step_shows_the_last_values(self) -> None:
        sae = make_sae(c2r_chunk_size=8)
        outputs = [sae.training_forward_pass(step_input(step)) for step in range(7)]
        assert all(name in output.metrics for output in outputs for name in self.NAMES)
        for name in self.NAMES:
            assert outputs[4].metrics[name] == outputs[0].metrics[name]
            assert outputs[5].metrics[name] != outputs[0].metrics[name]

    def test_relate_to_the_loss(self) -> None:
        output = make_sae(c2r_interval=5).training_forward_pass(step_input(0))
        product = (
            5 * output.metrics["c2r_effective_coefficient"] * output.metrics["c2r_penalty"]
        )
        torch.testing.assert_close(output.losses["c2r_loss"], product)
        assert not any(output.metrics[name].requires_grad for name in self.NAMES)

    def test_a_resumed_run_has_them_at_its_first_log(self) -> None:
        output = make_sae().training_forward_pass(step_input(9, logging=True))
        assert all(name in output.metrics for name in self.NAMES)
        assert "c2r_loss" not in output.losses

    def test_sae_lens_logs_them(self) -> None:
        training = trainer(make_sae(), 10, data())
        for _ in range(10):
            output = training.step(next(data()))
            training.n_training_steps += 1
        logged = training.build_train_step_log_dict(output, n_training_samples=0)
        assert {f"metrics/{name}" for name in self.NAMES} <= logged.keys()
        assert logged["details/c2r_coefficient"] == 5.0


class TestSaving:
    def test_inference_form_loads_without_us_and_encodes_alike(self, tmp_path: Path) -> None:
        sae = make_sae()
        trainer(sae, 40, data()).fit()
        sae.save_inference_model(tmp_path / "sae")
        inputs = next(data())
        found = encode_without_us(tmp_path / "sae", inputs)
        _, hidden_pre = sae.encode_with_hidden_pre(inputs)
        expected = torch.where(hidden_pre > sae.topk_threshold, hidden_pre, 0.0)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    def test_is_saved_as_jumprelu_that_remembers_how_it_was_trained(
        self, tmp_path: Path
    ) -> None:
        make_sae(c2r_coefficient=3.0).save_inference_model(tmp_path)
        loaded = JumpReLUSAE.load_from_disk(tmp_path)
        assert loaded.cfg.architecture() == "jumprelu"
        assert loaded.cfg.metadata.training_architecture == "batchtopk_c2r"
        assert loaded.cfg.metadata.training_architecture_details["c2r_coefficient"] == 3.0

    def test_training_form_keeps_options_and_weights(self, tmp_path: Path) -> None:
        sae = make_sae(c2r_chunk_size=None, c2r_interval=2, c2r_seed=9)
        sae.save_model(tmp_path)
        loaded = TrainingSAE.load_from_disk(tmp_path)
        assert isinstance(loaded, BatchTopKC2RTrainingSAE)
        for field in fields(sae.cfg):
            if field.name.startswith("c2r_"):
                assert getattr(loaded.cfg, field.name) == getattr(sae.cfg, field.name)
        assert all(
            torch.equal(value, loaded.state_dict()[name])
            for name, value in sae.state_dict().items()
        )

    def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(
        self, tmp_path: Path
    ) -> None:
        batches = [batch for batch, _ in zip(data(), range(14), strict=False)]
        options = {"c2r_chunk_size": 8, "c2r_interval": 3, "c2r_warm_up_steps": 10}
        whole = make_sae(**options)
        trainer(whole, 14, iter(batches)).fit()

        first = trainer(make_sae(**options), 7, iter(batches[:7]))
        first.fit()
        first.save_checkpoint("half", base_path=tmp_path)
        resumed = make_sae(**options)
        second = trainer(resumed, 14, iter(batches[7:]))
        second.load_trainer_state(tmp_path / "half")
        resumed.load_weights_from_checkpoint(tmp_path / "half")
        second.fit()
        assert torch.equal(resumed.W_dec, whole.W_dec)
        assert torch.equal(resumed.W_enc, whole.W_enc)


def test_compiled_training_step_equals_eager_and_settles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch._dynamo

    torch._dynamo.reset()
    sae = make_sae(c2r_interval=3)
    compiled = torch.compile(sae.training_forward_pass, backend="eager")

    def losses(step: int) -> tuple[TrainStepOutput, TrainStepOutput]:
        sae.topk_threshold.zero_()
        eager = sae.training_forward_pass(step_input(step))
        sae.topk_threshold.zero_()
        return eager, compiled(step_input(step))

    for step in range(4):
        losses(step)
    monkeypatch.setattr(torch._dynamo.config, "error_on_recompile", True)
    for step in range(4, 12):
        eager, found = losses(step)
        assert found.losses.keys() == eager.losses.keys()
        torch.testing.assert_close(found.loss, eager.loss)


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize(
    ("option", "value", "error", "says"),
    [
        ("c2r_coefficient", -1.0, ValueError, "be a finite number of at least 0"),
        ("c2r_coefficient", float("inf"), ValueError, "be a finite number of at least 0"),
        ("c2r_coefficient", "5", TypeError, "be a finite number of at least 0"),
        ("c2r_warm_up_steps", -1, ValueError, "be an integer of at least 0"),
        ("c2r_interval", 0, ValueError, "be an integer of at least 1"),
        ("c2r_interval", 2.5, TypeError, "be an integer of at least 1"),
        ("c2r_chunk_size", 1, ValueError, "be an integer of at least 2"),
        ("c2r_exponent", 0.0, ValueError, "be a finite number above 0"),
        ("c2r_scaling", "auto", ValueError, "be one of 'transfer', 'none'"),
        ("c2r_seed", 0.5, TypeError, "be an integer"),
    ],
)
def test_bad_options_are_named(option: str, value: object, error: type, says: str) -> None:
    with pytest.raises(error) as raised:
        config(**{option: value})
    assert f"Parameter `{option}` should {says}" in str(raised.value)
    assert f"Found `{option} = {value!r}`" in str(raised.value)


def test_the_backbone_still_checks_its_own_options() -> None:
    with pytest.raises(ValueError, match="normalize_activations"):
        config(normalize_activations="sometimes")
