"""Small training SAEs of every architecture, and SAELens's trainer for them."""

from collections.abc import Iterator
from typing import Any

import torch
from sae_lens import SAETrainer, TrainingSAE
from sae_lens.config import SAETrainerConfig
from sae_lens.registry import get_sae_training_class
from sae_lens.saes.sae import TrainCoefficientConfig, TrainingSAEConfig, TrainStepInput
from sae_lens.synthetic import (
    ActivationGenerator,
    FeatureDictionary,
    HierarchyNode,
    hierarchy_modifier,
)

from tests.strategies import ARCHITECTURES

D_IN, D_SAE, BATCH = 16, 64, 32


def backbone_of(architecture: str) -> str:
    """The architecture without the last of our penalties."""
    return "batchtopk" if architecture == "ort" else architecture.removesuffix("_c2r")


def penalties_of(architecture: str) -> list[str]:
    """The penalties that an architecture has, the last of which its backbone lacks."""
    return {"ort": ["ort"], "ort_c2r": ["ort", "c2r"]}.get(architecture, ["c2r"])


def make_config(architecture: str, **options: Any) -> TrainingSAEConfig:
    """A config of ours, or of a backbone, with the options that it cannot do without."""
    _, config_class = get_sae_training_class(architecture)
    sizes = {"d_in": D_IN, "d_sae": D_SAE}
    ours = architecture if architecture in ARCHITECTURES else f"{architecture}_c2r"
    config = {**sizes, **ARCHITECTURES[ours], **options}
    if "matryoshka_widths" in config:  # none may be larger than d_sae
        config["matryoshka_widths"] = sorted({1 + config["d_sae"] // 4, config["d_sae"]})
    return config_class(**config)


def make_sae(architecture: str, *, seed: int = 0, **options: Any) -> TrainingSAE[Any]:
    """A training SAE whose decoder rows have different lengths."""
    # Of a CPU alone: `torch.manual_seed` formats the call stack where CUDA was not used yet.
    torch.default_generator.manual_seed(seed)
    sae_class, _ = get_sae_training_class(architecture)
    sae = sae_class(make_config(architecture, **options))
    sae.W_dec.data.mul_(torch.rand(sae.cfg.d_sae, 1) + 0.5)
    return sae


def step_input(
    sae: TrainingSAE[Any],
    step: int = 0,
    *,
    sae_in: torch.Tensor | None = None,
    logging: bool = False,
) -> TrainStepInput:
    """What SAELens gives to one step after warm-up."""
    if sae_in is None:
        generator = torch.Generator().manual_seed(step)
        sae_in = 3 * torch.randn(BATCH, sae.cfg.d_in, generator=generator)
    return TrainStepInput(
        sae_in=sae_in.to(sae.dtype),
        coefficients={
            name: value.value if isinstance(value, TrainCoefficientConfig) else value
            for name, value in sae.get_coefficients().items()
        },
        dead_neuron_mask=None,
        n_training_steps=step,
        is_logging_step=logging,
    )


def hierarchy(seed: int = 1) -> Iterator[torch.Tensor]:
    """Batches from a small hierarchy: 6 parents with 2 children each."""
    torch.manual_seed(seed)
    roots = [
        HierarchyNode(
            feature_index=3 * tree,
            children=[HierarchyNode(feature_index=3 * tree + child) for child in (1, 2)],
        )
        for tree in range(6)
    ]
    features = FeatureDictionary(18, D_IN, bias=False)
    generator = ActivationGenerator(18, 0.3, modify_activations=hierarchy_modifier(roots))
    while True:
        yield features(generator.sample(BATCH)).detach()


def noise(seed: int = 1) -> Iterator[torch.Tensor]:
    """Batches that do not touch the global random state."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randn(BATCH, D_IN, generator=generator)


def make_trainer(
    sae: TrainingSAE[Any], steps: int, batches: Iterator[torch.Tensor], **options: Any
) -> SAETrainer[Any, Any]:
    """SAELens's trainer for so many steps in all."""
    settings: dict[str, Any] = {
        **{"total_training_samples": steps * BATCH, "train_batch_size_samples": BATCH},
        **{"lr": 1e-2, "lr_end": 1e-2},
        **{"feature_sampling_window": 1000, "n_batches_for_norm_estimate": 4},
        **options,
    }
    return SAETrainer(cfg=SAETrainerConfig(**settings), sae=sae, data_provider=batches)
