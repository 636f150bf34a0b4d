"""The C2R penalty: Eq. (16) of the paper."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sae_lens_c2r._checks import (
    check_decoder,
    check_feature_acts,
    check_neighbors,
    check_positive,
)
from sae_lens_c2r.penalties._precision import at_least_float32, full_precision, unit_rows
from sae_lens_c2r.penalties.neighbors import nearest_neighbors


def c2r_penalty(
    feature_acts: Tensor,
    W_dec: Tensor,
    *,
    chunk_size: int | None = 8192,
    exponent: float = 1.0,
    neighbors: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Batch norms of each latent and its nearest neighbour, gated by their squared cosine.

    .. math::
        \mathcal L_{C^2R} = \frac 1k \sum_{i=1}^k \rho_i^2 \,
        \bigl( \|Z_{:,i}\|_2 + \|Z_{:,j^*(i)}\|_2 \bigr)^a, \qquad
        \rho_i = \operatorname{ReLU}(\langle \hat w_i, \hat w_{j^*(i)} \rangle)

    Eq. (16) of the paper, where a = 1, with the neighbours :math:`j^*` of
    `nearest_neighbors`. Gradients flow into `feature_acts` (consistency) and, through
    :math:`\rho`, into `W_dec` (orthogonality); the choice of neighbours is not
    differentiated.

    Args:
        feature_acts: Activations Z, shape ``[..., d_sae]``; all leading dimensions together
            are the batch. In units of unit-norm decoder rows: where the decoder is not
            normalized, multiply latent i by ``||W_dec[i]||`` first. Dense or sparse COO.
        W_dec: Decoder, shape ``[d_sae, d_in]``. The length of its rows does not matter.
        chunk_size: Latents among which a neighbour is searched, see `nearest_neighbors`.
        exponent: The exponent a > 0.
        neighbors: Integer tensor of shape ``[d_sae]`` to use instead of searching. A latent
            that is its own neighbour contributes 0.
        generator: Draws the chunks, see `nearest_neighbors`.

    Returns:
        Scalar >= 0 in float32, or float64 where an input is float64, in autocast too.

    Raises:
        TypeError: If a tensor is not of floating point (`neighbors`: not of integers), or
            `chunk_size` not an integer.
        ValueError: If shapes do not match, the batch is empty, `chunk_size` is below 2 or
            `exponent` is not a finite number above 0.
    """
    check_decoder(W_dec)
    check_feature_acts(feature_acts, d_sae=len(W_dec))
    check_positive("exponent", exponent)
    if neighbors is None:
        neighbors = nearest_neighbors(W_dec, chunk_size=chunk_size, generator=generator)
    check_neighbors(neighbors, d_sae=len(W_dec))
    with full_precision(W_dec):
        gate = pair_cosines(W_dec, neighbors).clamp(0, 1).square()
        norms = batch_norms(feature_acts, at_least_float32(feature_acts, W_dec))
        return (gate * _power(norms + norms[neighbors], exponent)).mean()


def pair_cosines(
    W_dec: Float[Tensor, "d_sae d_in"], neighbors: Int[Tensor, " d_sae"]
) -> Float[Tensor, " d_sae"]:
    """Cosine of each decoder row with its neighbour's, differentiable; 0 for a lone latent."""
    unit = unit_rows(W_dec)
    alone = neighbors == torch.arange(len(neighbors), device=neighbors.device)
    return torch.where(alone, 0.0, (unit * unit[neighbors]).sum(dim=-1))


def batch_norms(
    feature_acts: Float[Tensor, "*batch d_sae"], dtype: torch.dtype
) -> Float[Tensor, " d_sae"]:
    """L2 norm of each latent's activations over the batch, with gradient 0 where it is 0."""
    if not feature_acts.is_sparse:
        return torch.linalg.vector_norm(feature_acts.flatten(0, -2), dim=0, dtype=dtype)
    feature_acts = feature_acts.coalesce()
    energy = torch.zeros(feature_acts.shape[-1], dtype=dtype, device=feature_acts.device)
    energy = energy.index_add(
        0, feature_acts.indices()[-1], feature_acts.values().to(dtype).square()
    )
    return _power(energy, 0.5)


def _power(base: Float[Tensor, " d_sae"], exponent: float) -> Float[Tensor, " d_sae"]:
    """``base ** exponent`` for base >= 0, with gradient 0 instead of infinity at 0."""
    if exponent == 1:
        return base
    positive = base > 0
    return torch.where(positive, torch.where(positive, base, 1.0) ** exponent, 0.0)
