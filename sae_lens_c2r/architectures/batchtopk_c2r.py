"""BatchTopK with C2R, the paper's main method. Saved as SAELens's `jumprelu`."""

from dataclasses import dataclass

from sae_lens.saes.batchtopk_sae import BatchTopKTrainingSAE, BatchTopKTrainingSAEConfig

from sae_lens_c2r.architectures.c2r import C2RConfigMixin, C2RMixin
from sae_lens_c2r.architectures.registration import register_architecture


@dataclass
class BatchTopKC2RTrainingSAEConfig(C2RConfigMixin, BatchTopKTrainingSAEConfig):
    """Configuration of `batchtopk_c2r`: the fields of `batchtopk` and of `C2RConfigMixin`."""


class BatchTopKC2RTrainingSAE(C2RMixin, BatchTopKTrainingSAE):
    """SAELens's `batchtopk` training SAE with the C2R penalty among its losses."""

    cfg: BatchTopKC2RTrainingSAEConfig


register_architecture(BatchTopKC2RTrainingSAE, BatchTopKC2RTrainingSAEConfig)
