"""The penalties as pure functions of tensors: they know torch and nothing of SAELens."""

from sae_lens_c2r.penalties.batches import typical_norm
from sae_lens_c2r.penalties.c2r import c2r_penalty, orthogonality_penalty
from sae_lens_c2r.penalties.neighbors import nearest_neighbors, step_generator
from sae_lens_c2r.penalties.scaling import transfer_factor

__all__ = [
    "c2r_penalty",
    "nearest_neighbors",
    "orthogonality_penalty",
    "step_generator",
    "transfer_factor",
    "typical_norm",
]
