"""TopK with C2R. Saved as SAELens's `topk`."""

from dataclasses import dataclass

from sae_lens.saes.topk_sae import TopKTrainingSAE, TopKTrainingSAEConfig

from sae_lens_c2r.architectures.c2r import C2RConfigMixin, C2RMixin
from sae_lens_c2r.architectures.registration import register_architecture


@dataclass
class TopKC2RTrainingSAEConfig(C2RConfigMixin, TopKTrainingSAEConfig):
    """Configuration of `topk_c2r`: the fields of `topk` and of `C2RConfigMixin`."""


class TopKC2RTrainingSAE(C2RMixin, TopKTrainingSAE):
    """SAELens's `topk` training SAE with the C2R penalty among its losses."""

    cfg: TopKC2RTrainingSAEConfig


register_architecture(TopKC2RTrainingSAE, TopKC2RTrainingSAEConfig)
