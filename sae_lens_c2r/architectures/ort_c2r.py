"""OrtSAE with C2R on top, as in the paper's table of backbones. Saved as `jumprelu`."""

from dataclasses import dataclass

from sae_lens_c2r.architectures.c2r import C2RConfigMixin, C2RMixin
from sae_lens_c2r.architectures.ort import OrtTrainingSAE, OrtTrainingSAEConfig
from sae_lens_c2r.architectures.registration import register_architecture


@dataclass
class OrtC2RTrainingSAEConfig(C2RConfigMixin, OrtTrainingSAEConfig):
    """Configuration of `ort_c2r`: the fields of `ort` and of `C2RConfigMixin`."""


class OrtC2RTrainingSAE(C2RMixin, OrtTrainingSAE):
    """The `ort` training SAE with the C2R penalty among its losses."""

    cfg: OrtC2RTrainingSAEConfig


register_architecture(OrtC2RTrainingSAE, OrtC2RTrainingSAEConfig)
