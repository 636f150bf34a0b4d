"""What can be measured of any SAE."""

from sae_lens_c2r.analysis.similarity import (
    RedundantPairs,
    chance_composition,
    composition,
    max_cosines,
    redundant_pairs,
)

__all__ = [
    "RedundantPairs",
    "chance_composition",
    "composition",
    "max_cosines",
    "redundant_pairs",
]
