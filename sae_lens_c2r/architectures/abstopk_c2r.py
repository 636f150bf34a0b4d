"""AbsTopK with C2R: activations of either sign. Saved as SAELens's `abstopk`."""

from dataclasses import dataclass

from sae_lens.saes.abstopk_sae import AbsTopKTrainingSAE, AbsTopKTrainingSAEConfig

from sae_lens_c2r.architectures.c2r import C2RConfigMixin, C2RMixin
from sae_lens_c2r.architectures.registration import register_architecture


@dataclass
class AbsTopKC2RTrainingSAEConfig(C2RConfigMixin, AbsTopKTrainingSAEConfig):
    """Configuration of `abstopk_c2r`: the fields of `abstopk` and of `C2RConfigMixin`."""


class AbsTopKC2RTrainingSAE(C2RMixin, AbsTopKTrainingSAE):
    """SAELens's `abstopk` training SAE with the C2R penalty among its losses."""

    cfg: AbsTopKC2RTrainingSAEConfig


register_architecture(AbsTopKC2RTrainingSAE, AbsTopKC2RTrainingSAEConfig)
