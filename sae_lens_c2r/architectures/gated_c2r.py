"""Gated SAE with C2R. Saved as SAELens's `gated`."""

from dataclasses import dataclass

from sae_lens.saes.gated_sae import GatedTrainingSAE, GatedTrainingSAEConfig

from sae_lens_c2r.architectures.c2r import C2RConfigMixin, C2RMixin
from sae_lens_c2r.architectures.registration import register_architecture


@dataclass
class GatedC2RTrainingSAEConfig(C2RConfigMixin, GatedTrainingSAEConfig):
    """Configuration of `gated_c2r`: the fields of `gated` and of `C2RConfigMixin`."""


class GatedC2RTrainingSAE(C2RMixin, GatedTrainingSAE):
    """SAELens's `gated` training SAE with the C2R penalty among its losses."""

    cfg: GatedC2RTrainingSAEConfig


register_architecture(GatedC2RTrainingSAE, GatedC2RTrainingSAEConfig)
