"""Matching Pursuit with C2R. Saved as SAELens's `matching_pursuit`."""

from dataclasses import dataclass

from sae_lens.saes.matching_pursuit_sae import (
    MatchingPursuitTrainingSAE,
    MatchingPursuitTrainingSAEConfig,
)

from sae_lens_c2r.architectures.c2r import C2RConfigMixin, C2RMixin
from sae_lens_c2r.architectures.registration import register_architecture


@dataclass
class MatchingPursuitC2RTrainingSAEConfig(C2RConfigMixin, MatchingPursuitTrainingSAEConfig):
    """Configuration: the fields of `matching_pursuit` and of `C2RConfigMixin`."""


class MatchingPursuitC2RTrainingSAE(C2RMixin, MatchingPursuitTrainingSAE):
    """SAELens's `matching_pursuit` training SAE with the C2R penalty among its losses."""

    cfg: MatchingPursuitC2RTrainingSAEConfig


register_architecture(MatchingPursuitC2RTrainingSAE, MatchingPursuitC2RTrainingSAEConfig)
