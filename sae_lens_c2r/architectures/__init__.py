"""SAELens training architectures with C2R; importing this package registers them."""

from sae_lens_c2r.architectures.abstopk_c2r import (
    AbsTopKC2RTrainingSAE,
    AbsTopKC2RTrainingSAEConfig,
)
from sae_lens_c2r.architectures.batchtopk_c2r import (
    BatchTopKC2RTrainingSAE,
    BatchTopKC2RTrainingSAEConfig,
)
from sae_lens_c2r.architectures.gated_c2r import (
    GatedC2RTrainingSAE,
    GatedC2RTrainingSAEConfig,
)
from sae_lens_c2r.architectures.jumprelu_c2r import (
    JumpReLUC2RTrainingSAE,
    JumpReLUC2RTrainingSAEConfig,
)
from sae_lens_c2r.architectures.matching_pursuit_c2r import (
    MatchingPursuitC2RTrainingSAE,
    MatchingPursuitC2RTrainingSAEConfig,
)
from sae_lens_c2r.architectures.matryoshka_batchtopk_c2r import (
    MatryoshkaBatchTopKC2RTrainingSAE,
    MatryoshkaBatchTopKC2RTrainingSAEConfig,
)
from sae_lens_c2r.architectures.ort import OrtTrainingSAE, OrtTrainingSAEConfig
from sae_lens_c2r.architectures.ort_c2r import OrtC2RTrainingSAE, OrtC2RTrainingSAEConfig
from sae_lens_c2r.architectures.standard_c2r import (
    StandardC2RTrainingSAE,
    StandardC2RTrainingSAEConfig,
)
from sae_lens_c2r.architectures.topk_c2r import (
    TopKC2RTrainingSAE,
    TopKC2RTrainingSAEConfig,
)
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
