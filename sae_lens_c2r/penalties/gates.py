r"""The gate: how much a pair of latents is pulled for the cosine of its decoder rows.

``"relu"`` is the paper's, :math:`\rho^2 = \operatorname{ReLU}(c)^2` (below its Eq. 16), and
``"none"`` its ablation NoRCG, 1 in place of it.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from sae_lens_c2r._support.checks import check_integer

Gate = Literal["relu", "none"]


def candidates(d_sae: int, chunk_size: int | None) -> int:
    """Number of latents among which a neighbour is searched, itself included, at least 2."""
    return max(2, min(chunk_size or d_sae, d_sae))


def squared_gate(cosines: Tensor, gate: Gate) -> Tensor:
    """The squared rectified cosines; 1 without a gate."""
    return torch.ones_like(cosines) if gate == "none" else cosines.clamp(0, 1).square()


def chance_composition(d_sae: int, d_in: int) -> float:
    r"""Mean `composition` of random directions.

    .. math::
        \mathbb E \max_{j < k} c_j = 1 - \int_{-1}^1 F(c)^{k-1} \, dc, \qquad
        F'(c) \propto (1 - c^2)^{(d-3)/2}

    F is the distribution of the cosine of two random directions in d dimensions, and the
    k - 1 cosines of one latent are independent. For large k and d it is a little below the
    rule of thumb :math:`\sqrt{2 \ln k / d}`.

    Args:
        d_sae: Latents, k, at least 2.
        d_in: Dimension of the inputs, d, at least 2.

    Returns:
        The chance level.

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If a number is below 2.
    """
    check_integer("d_sae", d_sae, minimum=2)
    check_integer("d_in", d_in, minimum=2)
    # With c = sin(angle) the density is cos(angle)^(d-2), which is finite everywhere.
    angle = torch.linspace(-math.pi / 2, math.pi / 2, 20001, dtype=torch.float64)
    density = angle.cos() ** (d_in - 2)
    cdf = torch.cumulative_trapezoid(density, angle)
    at_most = torch.cat([cdf.new_zeros(1), cdf / cdf[-1]]) ** (d_sae - 1)
    return 1 - torch.trapezoid(at_most * angle.cos(), angle).item()
