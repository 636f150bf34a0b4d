"""Matryoshka BatchTopK with C2R. Saved as SAELens's `jumprelu`."""

from dataclasses import dataclass

from sae_lens.saes.matryoshka_batchtopk_sae import (
    MatryoshkaBatchTopKTrainingSAE,
    MatryoshkaBatchTopKTrainingSAEConfig,
)

from sae_lens_c2r.architectures.c2r import C2RConfigMixin, C2RMixin
from sae_lens_c2r.architectures.registration import register_architecture


@dataclass
class MatryoshkaBatchTopKC2RTrainingSAEConfig(
    C2RConfigMixin, MatryoshkaBatchTopKTrainingSAEConfig
):
    """Configuration: the fields of `matryoshka_batchtopk` and of `C2RConfigMixin`."""


class MatryoshkaBatchTopKC2RTrainingSAE(C2RMixin, MatryoshkaBatchTopKTrainingSAE):
    """SAELens's `matryoshka_batchtopk` training SAE with the C2R penalty among its losses."""

    cfg: MatryoshkaBatchTopKC2RTrainingSAEConfig


register_architecture(
    MatryoshkaBatchTopKC2RTrainingSAE, MatryoshkaBatchTopKC2RTrainingSAEConfig
)
