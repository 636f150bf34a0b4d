"""What can be measured of any SAE."""

from sae_lens_c2r.analysis.absorption import AbsorptionPairs, absorption_pairs
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
)
from sae_lens_c2r.analysis.theory import (
    activation_table,
    consolidation_threshold,
    energies,
    pair_loss,
    pair_loss_derivative,
)

__all__ = [
    "AbsorptionPairs",
    "absorption_pairs",
    "absorption_rates",
    "activation_table",
    "chance_composition",
    "composition",
    "consolidation_threshold",
    "count_pairs",
    "energies",
    "latents_of_features",
    "latents_per_feature",
    "max_cosines",
    "pair_loss",
    "pair_loss_derivative",
    "partial_absorption_rates",
]
