"""Lambda that transfers: one coefficient for every batch, width and scale of activations."""

import math

import torch
from torch import Tensor

from sae_lens_c2r.penalties._precision import at_least_float32

# The setting that the paper's lambda = 5 was chosen in (Section 6.2): activations of unit
# RMS norm, Gemma-2-2B's residual stream, chunks of 8,192 latents.
PAPER_BATCH_SIZE = 2048
PAPER_D_SAE = 65536
PAPER_D_IN = 2304
PAPER_CANDIDATES = 8192


def transfer_factor(*, batch_size: int, d_sae: int, d_in: int, chunk_size: int | None) -> float:
    r"""What lambda is multiplied by, for inputs of norm 1, to act as it does in the paper.

    .. math::
        \sqrt{\frac{k / B}{k_0 / B_0}} \cdot \frac d{d_0} \cdot \frac{\ln n_0}{\ln n},
        \qquad n = \min(C, k)

    Index 0 is the paper's own setting, for which the factor is 1. What it holds constant is
    how much the penalty shrinks a latent whose nearest neighbour is only as close as chance
    makes it: scaled by s, the latent costs :math:`(1-s)^2 \|z\|^2 / B` of reconstruction and
    saves :math:`\lambda \rho^2 \|z\| / k` of penalty, so
    :math:`1 - s \sim \lambda \rho^2 B / (k \|z\|)`, with :math:`\|z\| = r \sqrt{B / k}` for
    inputs of norm r and :math:`\rho^2 = 2 \ln n / d` among n random directions. Multiply by
    the norm of the inputs, `typical_norm`, for inputs of another norm than 1.

    Args:
        batch_size: Tokens in the batch, B.
        d_sae: Latents, k.
        d_in: Dimension of the inputs, d.
        chunk_size: Latents among which a neighbour is searched, C; `None` for all.

    Returns:
        The factor, above 0.
    """
    candidates = max(2, d_sae if chunk_size is None else min(chunk_size, d_sae))
    per_latent = (d_sae / batch_size) / (PAPER_D_SAE / PAPER_BATCH_SIZE)
    chance = (d_in / PAPER_D_IN) * (math.log(PAPER_CANDIDATES) / math.log(candidates))
    return math.sqrt(per_latent) * chance


@torch.no_grad()
def typical_norm(sae_in: Tensor) -> Tensor:
    """Median L2 norm of the inputs, which are ``[..., d_in]``, as a detached scalar."""
    # A mean would be driven by a few massive tokens: a BOS token's norm can be 30 times
    # the others'.
    return torch.linalg.vector_norm(sae_in, dim=-1, dtype=at_least_float32(sae_in)).median()
