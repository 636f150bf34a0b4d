"""C2R for an architecture of a third party."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from sae_lens import (
    SAE,
    TopKTrainingSAE,
    TopKTrainingSAEConfig,
    TrainingSAE,
    register_sae_training_class,
)
from sae_lens.llm_sae_training_runner import _parse_cfg_args
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY
from sae_lens.saes.sae import TrainStepInput, TrainStepOutput
from sae_lens.saes.topk_sae import TopKSAEConfig

from sae_lens_c2r import TopKC2RTrainingSAE, TopKC2RTrainingSAEConfig, with_c2r
from tests.architectures.training import D_IN, make_trainer, noise, step_input


@dataclass
class MineTrainingSAEConfig(TopKTrainingSAEConfig):
    """Somebody's own config."""

    temperature: float = 1.0

    @classmethod
    def architecture(cls) -> str:
        return "mine"

    def get_inference_config_class(self) -> type[TopKSAEConfig]:
        return TopKSAEConfig


class MineTrainingSAE(TopKTrainingSAE):
    """Somebody's own SAE, which returns its loss in SAELens's shorthand."""

    def calculate_aux_loss(self, *args: object, **kwargs: object) -> torch.Tensor:
        losses = super().calculate_aux_loss(*args, **kwargs)
        return self.cfg.temperature + losses["auxiliary_reconstruction_loss"]


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """The registry as it was, after every test."""
    before = dict(SAE_TRAINING_CLASS_REGISTRY)
    register_sae_training_class("mine", MineTrainingSAE, MineTrainingSAEConfig)
    yield
    SAE_TRAINING_CLASS_REGISTRY.clear()
    SAE_TRAINING_CLASS_REGISTRY.update(before)


@pytest.mark.parametrize("backbone", ["mine", (MineTrainingSAE, MineTrainingSAEConfig)])
def test_regularizes_in_one_line(backbone, tmp_path: Path) -> None:
    sae_class, config_class = with_c2r(backbone)
    assert SAE_TRAINING_CLASS_REGISTRY["mine_c2r"] == (sae_class, config_class)
    sae = sae_class(
        config_class(d_in=D_IN, d_sae=64, k=4, temperature=2.0, c2r_coefficient=3.0)
    )
    losses = sae.training_forward_pass(step_input(sae)).losses
    assert losses["auxiliary_loss"] == 2
    assert losses["c2r_loss"] > 0
    make_trainer(sae, 10, noise()).fit()

    sae.save_model(tmp_path / "training")
    loaded = TrainingSAE.load_from_disk(tmp_path / "training")
    assert type(loaded) is sae_class
    assert (loaded.cfg.temperature, loaded.cfg.c2r_coefficient) == (2.0, 3.0)
    sae.save_inference_model(tmp_path / "inference")
    assert SAE.load_from_disk(tmp_path / "inference").cfg.architecture() == "topk"
    assert copy.deepcopy(sae).cfg == sae.cfg


def test_asked_twice_gives_the_same_classes() -> None:
    assert with_c2r("mine") == with_c2r((MineTrainingSAE, MineTrainingSAEConfig))
    assert with_c2r("topk") == (TopKC2RTrainingSAE, TopKC2RTrainingSAEConfig)


def test_an_edited_config_takes_the_place_of_the_earlier_one() -> None:
    with_c2r("mine")

    @dataclass
    class Edited(MineTrainingSAEConfig):
        extra: int = 7

    _, config_class = with_c2r((MineTrainingSAE, Edited))
    assert config_class(d_in=2, d_sae=4, k=1).extra == 7


def test_constructors_with_arguments_of_their_own_are_honoured() -> None:
    class Mine(MineTrainingSAE):
        def __init__(self, cfg: MineTrainingSAEConfig, flavour: str = "plain") -> None:
            super().__init__(cfg)
            self.flavour = flavour

    sae_class, config_class = with_c2r((Mine, MineTrainingSAEConfig))
    assert sae_class.__name__ == "MineC2R"
    sae = sae_class(config_class(d_in=4, d_sae=8, k=2), flavour="sour")
    assert sae.flavour == "sour"
    assert "c2r" in sae.get_coefficients()


def test_a_backbone_whose_training_leaves_the_penalty_out_is_refused_by_name() -> None:
    class Mine(MineTrainingSAE):
        def training_forward_pass(self, step_input: TrainStepInput) -> TrainStepOutput:
            acts, hidden_pre = self.encode_with_hidden_pre(step_input.sae_in)
            sae_out = self.decode(acts)
            loss = (sae_out - step_input.sae_in).square().mean()
            return TrainStepOutput(
                step_input.sae_in, sae_out, acts, hidden_pre, loss, {"mse_loss": loss}
            )

    sae_class, config_class = with_c2r((Mine, MineTrainingSAEConfig))
    sae = sae_class(config_class(d_in=D_IN, d_sae=64, k=4))
    with pytest.raises(TypeError, match=r"cannot have the penalty 'c2r'.*calculate_aux_loss"):
        sae.training_forward_pass(step_input(sae))


@pytest.mark.parametrize(
    ("backbone", "error"),
    [
        *((value, TypeError) for value in (5, None, TopKTrainingSAE, ("topk",), (SAE, int))),
        ((TopKTrainingSAEConfig, TopKTrainingSAE), TypeError),
        *((name, ValueError) for name in ("nobodys", "topk_c2r")),
    ],
)
def test_what_is_no_backbone_is_refused(backbone: object, error: type) -> None:
    with pytest.raises(error, match="Parameter `backbone` should"):
        with_c2r(backbone)


def test_a_taken_name_is_refused() -> None:
    register_sae_training_class("mine_c2r", TopKTrainingSAE, TopKTrainingSAEConfig)
    with pytest.raises(ValueError, match=r"'mine_c2r'.*already registered.*TopKTrainingSAE"):
        with_c2r("mine")


def test_sae_lens_command_line_takes_it() -> None:
    with_c2r("mine")
    flags = ["--architecture", "mine_c2r", "--c2r_interval", "9", "--temperature", "3"]
    cfg = _parse_cfg_args(flags).sae
    assert (cfg.c2r_interval, cfg.temperature) == (9, 3.0)
