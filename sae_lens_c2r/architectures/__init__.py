"""SAELens training architectures with C2R; importing this package registers them."""

from sae_lens_c2r.architectures.backbones import (
    AbsTopKC2RTrainingSAE,
    AbsTopKC2RTrainingSAEConfig,
    BatchTopKC2RTrainingSAE,
    BatchTopKC2RTrainingSAEConfig,
    GatedC2RTrainingSAE,
    GatedC2RTrainingSAEConfig,
    JumpReLUC2RTrainingSAE,
    JumpReLUC2RTrainingSAEConfig,
    MatchingPursuitC2RTrainingSAE,
    MatchingPursuitC2RTrainingSAEConfig,
    MatryoshkaBatchTopKC2RTrainingSAE,
    MatryoshkaBatchTopKC2RTrainingSAEConfig,
    OrtC2RTrainingSAE,
    OrtC2RTrainingSAEConfig,
    StandardC2RTrainingSAE,
    StandardC2RTrainingSAEConfig,
    TopKC2RTrainingSAE,
    TopKC2RTrainingSAEConfig,
)
from sae_lens_c2r.architectures.ort import OrtTrainingSAE, OrtTrainingSAEConfig
from sae_lens_c2r.architectures.with_c2r import with_c2r

__all__ = [
    "AbsTopKC2RTrainingSAE",
    "AbsTopKC2RTrainingSAEConfig",
    "BatchTopKC2RTrainingSAE",
    "BatchTopKC2RTrainingSAEConfig",
    "GatedC2RTrainingSAE",
    "GatedC2RTrainingSAEConfig",
    "JumpReLUC2RTrainingSAE",
    "JumpReLUC2RTrainingSAEConfig",
    "MatchingPursuitC2RTrainingSAE",
    "MatchingPursuitC2RTrainingSAEConfig",
    "MatryoshkaBatchTopKC2RTrainingSAE",
    "MatryoshkaBatchTopKC2RTrainingSAEConfig",
    "OrtC2RTrainingSAE",
    "OrtC2RTrainingSAEConfig",
    "OrtTrainingSAE",
    "OrtTrainingSAEConfig",
    "StandardC2RTrainingSAE",
    "StandardC2RTrainingSAEConfig",
    "TopKC2RTrainingSAE",
    "TopKC2RTrainingSAEConfig",
    "with_c2r",
]
