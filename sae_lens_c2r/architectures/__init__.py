"""SAELens training architectures with C2R; importing this package registers them."""

from sae_lens_c2r.architectures.batchtopk_c2r import (
    BatchTopKC2RTrainingSAE,
    BatchTopKC2RTrainingSAEConfig,
)

__all__ = ["BatchTopKC2RTrainingSAE", "BatchTopKC2RTrainingSAEConfig"]
