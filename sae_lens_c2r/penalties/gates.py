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

from typing import Literal

import torch
from torch import Tensor

from sae_lens_c2r.penalties.chance import chance_composition

Gate = Literal["relu", "excess", "none"]


def candidates(d_sae: int, chunk_size: int | None) -> int:
    """The latents among which a neighbour is searched, itself included.

    Args:
        d_sae: Latents, k.
        chunk_size: Latents to a chunk, C; `None` for all.

    Returns:
        n = min(C, k), at least 2.
    """
    return max(2, d_sae if chunk_size is None else min(chunk_size, d_sae))


def gate_threshold(gate: Gate, W_dec: Tensor, chunk_size: int | None) -> float | None:
    """The cosine from which on a gate opens.

    Args:
        gate: Which gate.
        W_dec: Decoder, shape ``[d_sae, d_in]``.
        chunk_size: Latents among which a neighbour is searched; `None` for all.

    Returns:
        A cosine from 0 to 1; `None` where the gate is always open.
    """
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
