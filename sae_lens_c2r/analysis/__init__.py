"""What can be measured of any SAE."""

from sae_lens_c2r.analysis.absorption import AbsorptionPairs, absorption_pairs
from sae_lens_c2r.analysis.cofiring import (
    CoFiring,
    chance_co_firing,
    co_firing,
    pair_jaccards,
)
from sae_lens_c2r.analysis.ground_truth import (
    absorption_rates,
    latents_of_features,
    latents_per_feature,
    partial_absorption_rates,
)
from sae_lens_c2r.analysis.similarity import (
    chance_composition,
    composition,
    count_pairs,
    max_cosines,
    pairs_above,
)

__all__ = [
    "AbsorptionPairs",
    "CoFiring",
    "absorption_pairs",
    "absorption_rates",
    "chance_co_firing",
    "chance_composition",
    "co_firing",
    "composition",
    "count_pairs",
    "latents_of_features",
    "latents_per_feature",
    "max_cosines",
    "pair_jaccards",
    "pairs_above",
    "partial_absorption_rates",
]
