"""Measures of any SAE."""

from sae_lens_c2r.analysis.absorption import AbsorptionPairs, absorption_pairs
from sae_lens_c2r.analysis.cofiring import CoFiring, chance_co_firing, co_firing, pair_jaccards
from sae_lens_c2r.analysis.recovery import hierarchy_absorption
from sae_lens_c2r.analysis.similarity import (
    chance_composition,
    composition,
    latents_of_features,
    latents_per_feature,
    max_cosines,
    max_cosines_and_counts,
    pairs_above,
)

__all__ = [
    "AbsorptionPairs",
    "CoFiring",
    "absorption_pairs",
    "chance_co_firing",
    "chance_composition",
    "co_firing",
    "composition",
    "hierarchy_absorption",
    "latents_of_features",
    "latents_per_feature",
    "max_cosines",
    "max_cosines_and_counts",
    "pair_jaccards",
    "pairs_above",
]
