"""How alike the decoder's rows are: composition, its chance level, pairs above a cosine."""

import math
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sae_lens_c2r._support.checks import check_decoder, check_integer
from sae_lens_c2r.penalties import nearest_neighbors
from sae_lens_c2r.penalties.cosines import pair_cosines
from sae_lens_c2r.penalties.precision import full_precision, unit_rows
from sae_lens_c2r.penalties.tiles import rows_per_tile


def composition(W_dec: Tensor) -> float:
    r"""Mean over the latents of the highest cosine with another latent's decoder row.

    .. math:: \frac 1k \sum_{i=1}^k \max_{j \neq i} \langle \hat w_i, \hat w_j \rangle

    The paper's feature composition metric (Section 6.8), over the whole dictionary. Compare
    it with `chance_composition`: below that, lower is not better.

    Args:
        W_dec: Decoder, shape ``[d_sae, d_in]``.

    Returns:
        A number from -1 to 1.

    Raises:
        TypeError: If `W_dec` is not a floating-point tensor.
        ValueError: If `W_dec` is not two-dimensional.
    """
    return max_cosines(W_dec).mean().item()


@torch.no_grad()
def max_cosines(W_dec: Tensor) -> Float[Tensor, " d_sae"]:
    """The highest cosine of each decoder row with another, over the whole dictionary."""
    return pair_cosines(W_dec, nearest_neighbors(W_dec, chunk_size=None))


def chance_composition(d_sae: int, d_in: int) -> float:
    r"""What `composition` is on average for random directions.

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


@torch.no_grad()
def count_pairs(W_dec: Tensor, *, above: Sequence[float]) -> list[int]:
    """How many unordered pairs of latents have decoder rows with a cosine over a threshold.

    Args:
        W_dec: Decoder, shape ``[d_sae, d_in]``.
        above: Thresholds.

    Returns:
        A count for each threshold.
    """
    check_decoder(W_dec)
    counts = [0] * len(above)
    for _, tile in _cosines_of_pairs(W_dec):
        for number, threshold in enumerate(above):
            counts[number] += int((tile > threshold).sum())
    return counts


@torch.no_grad()
def pairs_above(W_dec: Tensor, cosine: float) -> Int[Tensor, "pairs 2"]:
    """The pairs that `count_pairs` counts, the lower latent first, in ascending order.

    Args:
        W_dec: Decoder, shape ``[d_sae, d_in]``.
        cosine: The threshold.

    Returns:
        The pairs, on the device of `W_dec`.
    """
    check_decoder(W_dec)
    tiles = _cosines_of_pairs(W_dec)
    return torch.cat([(tile > cosine).nonzero() + start for start, tile in tiles])


def _cosines_of_pairs(W_dec: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Tiles of cosines, from a latent on in both directions, each unordered pair once."""
    with full_precision(W_dec):
        unit = unit_rows(W_dec)
        size = rows_per_tile(len(unit), unit.dtype, unit.device)
        for start in range(0, len(unit), size):
            tile = unit[start : start + size] @ unit[start:].T
            no_pair = torch.ones_like(tile, dtype=torch.bool).tril()
            yield start, tile.masked_fill_(no_pair, -math.inf)
