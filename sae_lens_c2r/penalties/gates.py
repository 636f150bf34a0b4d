r"""The gate: how much a pair of latents is pulled for the cosine of its decoder rows.

``"relu"`` is the paper's, :math:`\rho^2 = \operatorname{ReLU}(c)^2` (below its Eq. 16), and
``"none"`` its ablation NoRCG, 1 in place of it. ``"excess"`` is ours:

.. math:: \operatorname{ReLU}(c - c_n)^2, \qquad c_n = \mathbb E \max_{j < n} c_j

with :math:`c_n` the highest cosine that chance gives a latent among n random directions,
`chance_composition` of the n latents among which a neighbour is searched. The paper's gate
pulls every latent, for in d dimensions each has a neighbour at about :math:`c_n`: the more
lambda is raised, the more it bends decoders that are as they should be. A pair is evidence of
a concept in two places only by what its cosine has in excess of that.
"""

import math
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from sae_lens_c2r._support.checks import check_integer

Gate = Literal["relu", "excess", "none"]


def candidates(d_sae: int, chunk_size: int | None) -> int:
    """Number of latents among which a neighbour is searched, itself included, at least 2."""
    return max(2, min(chunk_size or d_sae, d_sae))


def gate_threshold(gate: Gate, W_dec: Tensor, chunk_size: int | None) -> float | None:
    """Cosine, from 0 to 1, from which on a gate opens; `None` where it is always open."""
    if gate == "none":
        return None
    if gate == "relu":
        return 0.0
    d_sae, d_in = W_dec.shape
    return max(0.0, chance_composition(candidates(d_sae, chunk_size), max(2, d_in)))


def squared_gate(cosines: Tensor, threshold: float | None) -> Tensor:
    """The squared excess of cosines over a gate's threshold; 1 where that is `None`."""
    if threshold is None:
        return torch.ones_like(cosines)
    return (cosines - threshold).clamp(0, 1).square()


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
    return _highest_cosine(d_sae, d_in)


@cache  # a penalty asks at every step
def _highest_cosine(d_sae: int, d_in: int) -> float:
    # With c = sin(angle) the density is cos(angle)^(d-2), which is finite everywhere.
    angle = torch.linspace(-math.pi / 2, math.pi / 2, 20001, dtype=torch.float64)
    density = angle.cos() ** (d_in - 2)
    cdf = torch.cumulative_trapezoid(density, angle)
    at_most = torch.cat([cdf.new_zeros(1), cdf / cdf[-1]]) ** (d_sae - 1)
    return 1 - torch.trapezoid(at_most * angle.cos(), angle).item()
