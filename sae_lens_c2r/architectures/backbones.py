"""C2R on each of SAELens's backbones, and on OrtSAE: classes that differ in names only.

Each is saved in its backbone's inference form, which SAELens alone loads.
"""

from dataclasses import dataclass

from sae_lens.saes.abstopk_sae import AbsTopKTrainingSAE, AbsTopKTrainingSAEConfig
from sae_lens.saes.batchtopk_sae import BatchTopKTrainingSAE, BatchTopKTrainingSAEConfig
from sae_lens.saes.gated_sae import GatedTrainingSAE, GatedTrainingSAEConfig
from sae_lens.saes.jumprelu_sae import JumpReLUTrainingSAE, JumpReLUTrainingSAEConfig
from sae_lens.saes.matching_pursuit_sae import (
    MatchingPursuitTrainingSAE,
    MatchingPursuitTrainingSAEConfig,
)
from sae_lens.saes.matryoshka_batchtopk_sae import (
    MatryoshkaBatchTopKTrainingSAE,
    MatryoshkaBatchTopKTrainingSAEConfig,
)
from sae_lens.saes.standard_sae import StandardTrainingSAE, StandardTrainingSAEConfig
from sae_lens.saes.topk_sae import TopKTrainingSAE, TopKTrainingSAEConfig

from sae_lens_c2r.architectures.c2r import C2RConfigMixin, C2RMixin
from sae_lens_c2r.architectures.ort import OrtTrainingSAE as OrtTrainingSAE
from sae_lens_c2r.architectures.ort import OrtTrainingSAEConfig as OrtTrainingSAEConfig
from sae_lens_c2r.architectures.with_c2r import register_architecture


@dataclass
class BatchTopKC2RTrainingSAEConfig(C2RConfigMixin, BatchTopKTrainingSAEConfig):
    """Configuration of `batchtopk_c2r`: the fields of `batchtopk` and of `C2RConfigMixin`."""


class BatchTopKC2RTrainingSAE(C2RMixin, BatchTopKTrainingSAE):
    """BatchTopK with C2R, the paper's main method. Saved as `jumprelu`."""

    cfg: BatchTopKC2RTrainingSAEConfig


@dataclass
class TopKC2RTrainingSAEConfig(C2RConfigMixin, TopKTrainingSAEConfig):
    """Configuration of `topk_c2r`: the fields of `topk` and of `C2RConfigMixin`."""


class TopKC2RTrainingSAE(C2RMixin, TopKTrainingSAE):
    """TopK with C2R. Saved as `topk`."""

    cfg: TopKC2RTrainingSAEConfig


@dataclass
class AbsTopKC2RTrainingSAEConfig(C2RConfigMixin, AbsTopKTrainingSAEConfig):
    """Configuration of `abstopk_c2r`: the fields of `abstopk` and of `C2RConfigMixin`."""


class AbsTopKC2RTrainingSAE(C2RMixin, AbsTopKTrainingSAE):
    """AbsTopK with C2R: activations of either sign. Saved as `abstopk`."""

    cfg: AbsTopKC2RTrainingSAEConfig


@dataclass
class MatryoshkaBatchTopKC2RTrainingSAEConfig(
    C2RConfigMixin, MatryoshkaBatchTopKTrainingSAEConfig
):
    """Configuration: the fields of `matryoshka_batchtopk` and of `C2RConfigMixin`."""


class MatryoshkaBatchTopKC2RTrainingSAE(C2RMixin, MatryoshkaBatchTopKTrainingSAE):
    """Matryoshka BatchTopK with C2R. Saved as `jumprelu`."""

    cfg: MatryoshkaBatchTopKC2RTrainingSAEConfig


@dataclass
class JumpReLUC2RTrainingSAEConfig(C2RConfigMixin, JumpReLUTrainingSAEConfig):
    """Configuration of `jumprelu_c2r`: the fields of `jumprelu` and of `C2RConfigMixin`."""


class JumpReLUC2RTrainingSAE(C2RMixin, JumpReLUTrainingSAE):
    """JumpReLU with C2R. Saved as `jumprelu`."""

    cfg: JumpReLUC2RTrainingSAEConfig


@dataclass
class GatedC2RTrainingSAEConfig(C2RConfigMixin, GatedTrainingSAEConfig):
    """Configuration of `gated_c2r`: the fields of `gated` and of `C2RConfigMixin`."""


class GatedC2RTrainingSAE(C2RMixin, GatedTrainingSAE):
    """Gated SAE with C2R. Saved as `gated`."""

    cfg: GatedC2RTrainingSAEConfig


@dataclass
class StandardC2RTrainingSAEConfig(C2RConfigMixin, StandardTrainingSAEConfig):
    """Configuration of `standard_c2r`: the fields of `standard` and of `C2RConfigMixin`."""


class StandardC2RTrainingSAE(C2RMixin, StandardTrainingSAE):
    """Standard (L1) SAE with C2R. Saved as `standard`."""

    cfg: StandardC2RTrainingSAEConfig


@dataclass
class MatchingPursuitC2RTrainingSAEConfig(C2RConfigMixin, MatchingPursuitTrainingSAEConfig):
    """Configuration: the fields of `matching_pursuit` and of `C2RConfigMixin`."""


class MatchingPursuitC2RTrainingSAE(C2RMixin, MatchingPursuitTrainingSAE):
    """Matching Pursuit with C2R. Saved as `matching_pursuit`."""

    cfg: MatchingPursuitC2RTrainingSAEConfig


@dataclass
class OrtC2RTrainingSAEConfig(C2RConfigMixin, OrtTrainingSAEConfig):
    """Configuration of `ort_c2r`: the fields of `ort` and of `C2RConfigMixin`."""


class OrtC2RTrainingSAE(C2RMixin, OrtTrainingSAE):
    """OrtSAE with C2R on top, as in the paper's table of backbones. Saved as `jumprelu`."""

    cfg: OrtC2RTrainingSAEConfig


register_architecture(BatchTopKC2RTrainingSAE, BatchTopKC2RTrainingSAEConfig)
register_architecture(TopKC2RTrainingSAE, TopKC2RTrainingSAEConfig)
register_architecture(AbsTopKC2RTrainingSAE, AbsTopKC2RTrainingSAEConfig)
register_architecture(
    MatryoshkaBatchTopKC2RTrainingSAE, MatryoshkaBatchTopKC2RTrainingSAEConfig
)
register_architecture(JumpReLUC2RTrainingSAE, JumpReLUC2RTrainingSAEConfig)
register_architecture(GatedC2RTrainingSAE, GatedC2RTrainingSAEConfig)
register_architecture(StandardC2RTrainingSAE, StandardC2RTrainingSAEConfig)
register_architecture(MatchingPursuitC2RTrainingSAE, MatchingPursuitC2RTrainingSAEConfig)
register_architecture(OrtC2RTrainingSAE, OrtC2RTrainingSAEConfig)
