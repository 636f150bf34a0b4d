"""JumpReLU with C2R. Saved as SAELens's `jumprelu`."""

from dataclasses import dataclass

from sae_lens.saes.jumprelu_sae import JumpReLUTrainingSAE, JumpReLUTrainingSAEConfig

from sae_lens_c2r.architectures.c2r import C2RConfigMixin, C2RMixin
from sae_lens_c2r.architectures.registration import register_architecture


@dataclass
class JumpReLUC2RTrainingSAEConfig(C2RConfigMixin, JumpReLUTrainingSAEConfig):
    """Configuration of `jumprelu_c2r`: the fields of `jumprelu` and of `C2RConfigMixin`."""


class JumpReLUC2RTrainingSAE(C2RMixin, JumpReLUTrainingSAE):
    """SAELens's `jumprelu` training SAE with the C2R penalty among its losses."""

    cfg: JumpReLUC2RTrainingSAEConfig


register_architecture(JumpReLUC2RTrainingSAE, JumpReLUC2RTrainingSAEConfig)
