"""Standard (L1) SAE with C2R. Saved as SAELens's `standard`."""

from dataclasses import dataclass

from sae_lens.saes.standard_sae import StandardTrainingSAE, StandardTrainingSAEConfig

from sae_lens_c2r.architectures.c2r import C2RConfigMixin, C2RMixin
from sae_lens_c2r.architectures.registration import register_architecture


@dataclass
class StandardC2RTrainingSAEConfig(C2RConfigMixin, StandardTrainingSAEConfig):
    """Configuration of `standard_c2r`: the fields of `standard` and of `C2RConfigMixin`."""


class StandardC2RTrainingSAE(C2RMixin, StandardTrainingSAE):
    """SAELens's `standard` training SAE with the C2R penalty among its losses."""

    cfg: StandardC2RTrainingSAEConfig


register_architecture(StandardC2RTrainingSAE, StandardC2RTrainingSAEConfig)
