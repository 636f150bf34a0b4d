"""Lambda that transfers: one coefficient for every batch, width and scale of activations."""

import math
from typing import get_args

from sae_lens_c2r._support import checks
from sae_lens_c2r.penalties.c2r import Gate, Pairs

# The setting that the paper's lambda = 5 was chosen in (Section 6.2): activations of unit
# RMS norm, Gemma-2-2B's residual stream, chunks of 8,192 latents.
PAPER_BATCH_SIZE = 2048
PAPER_D_SAE = 65536
PAPER_D_IN = 2304
PAPER_CANDIDATES = 8192


def transfer_factor(
    *,
    batch_size: int,
    d_sae: int,
    d_in: int,
    chunk_size: int | None,
    exponent: float = 1.0,
    pairs: Pairs = "nearest",
    gate: Gate = "relu",
) -> float:
    r"""Factor of lambda, for inputs of norm 1, with which it acts as it does in the paper.

    .. math::
        \left( \frac{k / B}{k_0 / B_0} \right)^{a/2} \frac{c_0}{c}, \qquad
        c = \frac{2 \ln n}d, \qquad n = \min(C, k)

    Index 0 is the paper's own setting, for which the factor is 1; there and here the penalty
    has the same exponent, pairs and gate. For inputs of norm r, multiply by :math:`r^{2-a}`.

    What stays the same is how much the penalty shrinks a latent whose nearest neighbour is only
    as close as chance makes it. Scale its activations z by s. Reconstruction then costs
    :math:`(1 - s)^2 \lVert z \rVert^2 / B` more, and the penalty saves in proportion to
    :math:`\lambda \rho^2 \lVert z \rVert / k`. The latent fires on a share :math:`L_0 / k` of
    the tokens with an activation of about :math:`r / \sqrt{L_0}`, so that
    :math:`\lVert z \rVert = r \sqrt{B / k}`, whatever :math:`L_0` is. Holding

    .. math:: 1 - s \sim \lambda \, \frac{\rho^2 B}{k \lVert z \rVert} \sim
        \lambda \, \frac{2 \ln n}{d} \sqrt{\frac Bk} \, \frac 1r

    at its value in the paper gives the factor for a = 1; other exponents follow the same steps.
    ``docs/how-lambda-transfers.md`` has what was measured.

    c is the gate that chance makes: the square of the highest of n cosines of random
    directions in d dimensions. Over all pairs it is :math:`(n - 1) / 2d`; without a gate, 1 in
    place of the square, it is 1 or n - 1.

    Args:
        batch_size: Tokens in the batch, B.
        d_sae: Latents, k.
        d_in: Dimension of the inputs, d.
        chunk_size: Latents among which a neighbour is searched, C; `None` for all.
        exponent: The penalty's exponent, a; 0 for OrtSAE's, which has no activations.
        pairs: The penalty's pairs.
        gate: The penalty's gate.

    Returns:
        The factor, above 0.
    """
    for name, value in (("batch_size", batch_size), ("d_sae", d_sae), ("d_in", d_in)):
        checks.check_number(name, value, positive=True)
    checks.check_number("exponent", exponent)
    checks.check_choice("pairs", pairs, get_args(Pairs))
    checks.check_choice("gate", gate, get_args(Gate))
    per_latent = (d_sae / batch_size) / (PAPER_D_SAE / PAPER_BATCH_SIZE)
    papers_chance = _chance_gate(PAPER_CANDIDATES, PAPER_D_IN, pairs, gate)
    candidates = max(2, min(chunk_size or d_sae, d_sae))  # a latent, itself included
    chance = _chance_gate(candidates, d_in, pairs, gate)
    return per_latent ** (exponent / 2) * (papers_chance / chance)


def _chance_gate(n: int, d_in: int, pairs: Pairs, gate: Gate) -> float:
    """The sum of the gates of a latent among n random directions."""
    if pairs == "all":
        return float(n - 1) * (1.0 if gate == "none" else 1 / (2 * d_in))
    return 1.0 if gate == "none" else 2 * math.log(n) / d_in
