"""Cosines of decoder rows with their neighbours'."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sae_lens_c2r.penalties._precision import unit_rows


def pair_cosines(
    W_dec: Float[Tensor, "d_sae d_in"], neighbors: Int[Tensor, " d_sae"]
) -> Float[Tensor, " d_sae"]:
    """Cosine of each decoder row with its neighbour's, differentiable; 0 for a lone latent."""
    unit = unit_rows(W_dec)
    return torch.where(alone(neighbors), 0.0, (unit * unit[neighbors]).sum(dim=-1))


def alone(neighbors: Int[Tensor, " d_sae"]) -> Tensor:
    """Which latents are their own neighbours, having been alone in their chunks."""
    return neighbors == torch.arange(len(neighbors), device=neighbors.device)
