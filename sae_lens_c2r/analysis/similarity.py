"""Cosines of decoder rows, with each other and with the directions of known features."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement

import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm import tqdm

from sae_lens_c2r._support import checks
from sae_lens_c2r.penalties.cosines import (
    at_least_float32,
    edge_of_tiles,
    full_precision,
    in_range,
    slices_of_tiles,
    unit_rows,
)


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
        ValueError: If `W_dec` is not a finite matrix, or 0 everywhere.
    """
    highest = max_cosines(W_dec)
    if not W_dec.any():
        raise ValueError(checks.message("W_dec", "not be 0 everywhere", W_dec))
    return highest.mean().item()


def chance_composition(d_sae: int, d_in: int) -> float:
    r"""Mean `composition` of random directions.

    .. math::
        \mathbb E \max_{j < k} c_j = 1 - \int_{-1}^1 F(c)^{k-1} \, dc, \qquad
        F'(c) \propto (1 - c^2)^{(d-3)/2}

    F is the distribution of the cosine of two random directions in d dimensions; a latent's
    are independent. For large k and d it is a little below :math:`\sqrt{2 \ln k / d}`.

    Args:
        d_sae: Latents, k, at least 2.
        d_in: Dimension of the inputs, d, at least 2.

    Returns:
        The chance level.

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If a number is below 2.
    """
    checks.check_integer("d_sae", d_sae, minimum=2)
    checks.check_integer("d_in", d_in, minimum=2)
    # With c = sin(angle) the density is cos(angle)^(d-2), which is finite everywhere.
    angle = torch.linspace(-math.pi / 2, math.pi / 2, 20001, dtype=torch.float64)
    density = angle.cos() ** (d_in - 2)
    cdf = torch.cumulative_trapezoid(density, angle)
    at_most = torch.cat([cdf.new_zeros(1), cdf / cdf[-1]]) ** (d_sae - 1)
    return 1 - torch.trapezoid(at_most * angle.cos(), angle).item()


def max_cosines(W_dec: Tensor) -> Float[Tensor, " d_sae"]:
    """The highest cosine of each decoder row with another, over the whole dictionary."""
    return max_cosines_and_counts(W_dec, above=())[0]


@torch.no_grad()
def max_cosines_and_counts(
    W_dec: Tensor, *, above: Sequence[float]
) -> tuple[Float[Tensor, " d_sae"], list[int]]:
    """The highest cosines and the counts of pairs, by one product of all pairs."""
    W_dec = in_range(W_dec)
    for bound in above:
        checks.check_number("above", bound, negative=True)
    counts, dtype = [0] * len(above), at_least_float32(W_dec)
    highest = torch.full((len(W_dec),), -1.0, dtype=dtype, device=W_dec.device)
    for rows, columns, tile in _tiles_of_pairs(W_dec):
        for latents, dim in ((rows, 1), (columns, 0)):
            highest[latents] = torch.maximum(highest[latents], tile.amax(dim))
        for number, threshold in enumerate(above):
            counts[number] += int((tile > threshold).sum())
    return highest.clamp(-1, 1) if len(W_dec) > 1 else highest.zero_(), counts


def pairs_above(
    W_dec: Tensor, cosine: float, *, most: int | None = None
) -> Int[Tensor, "pairs 2"]:
    """The pairs of latents above a cosine, the lower latent first, in ascending order.

    Args:
        W_dec: Decoder, shape ``[d_sae, d_in]``.
        cosine: The threshold.
        most: How many pairs there are at most, the most alike ones. `None` for all: of 5,000
            like latents there are 12 million.

    Returns:
        The pairs, on the device of `W_dec`.
    """
    return pairs_above_and_count(W_dec, cosine, most=most)[0]


@torch.no_grad()
def pairs_above_and_count(
    W_dec: Tensor, cosine: float, *, most: int | None
) -> tuple[Int[Tensor, "pairs 2"], int]:
    """The pairs above a cosine, and how many there are in all, by one product of all pairs."""
    W_dec = in_range(W_dec)
    checks.check_number("cosine", cosine, negative=True)
    count = 0
    pairs = torch.empty(0, 2, dtype=torch.long, device=W_dec.device)
    cosines = torch.empty(0, device=W_dec.device)
    for rows, columns, tile in _tiles_of_pairs(W_dec):
        found = (tile > cosine).nonzero()
        count += len(found)
        cosines = torch.cat([cosines, tile[tuple(found.T)]])
        pairs = torch.cat([pairs, found + found.new_tensor([rows.start, columns.start])])
        if most is not None and len(pairs) > most:
            kept = cosines.topk(most).indices
            pairs, cosines = pairs[kept], cosines[kept]
    return pairs[(pairs[:, 0] * len(W_dec) + pairs[:, 1]).argsort()], count


def _tiles_of_pairs(W_dec: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Square tiles of cosines with the latents in both directions, each unordered pair once."""
    edge, unit = edge_of_tiles(W_dec.device), unit_rows(W_dec)
    parts = [slice(start, start + edge) for start in range(0, len(unit), edge)]
    pairs = list(combinations_with_replacement(parts, 2))
    for rows, columns in tqdm(pairs, "Comparing latents", leave=False, delay=5):
        with full_precision(W_dec):
            tile = unit[rows] @ unit[columns].T
        if rows == columns:
            no_pair = torch.ones_like(tile, dtype=torch.bool).tril()
            tile.masked_fill_(no_pair, -math.inf)
        yield rows, columns, tile


@torch.no_grad()
def latents_of_features(
    W_dec: Float[Tensor, "d_sae d_in"], feature_vectors: Float[Tensor, "features d_in"]
) -> tuple[Int[Tensor, " features"], Float[Tensor, " features"]]:
    """Find for every true feature the latent whose decoder row is the nearest.

    Args:
        W_dec: The decoder.
        feature_vectors: The features' true directions.

    Returns:
        The latents, and their cosines with the features.
    """
    W_dec, feature_vectors = _that_fit(W_dec, feature_vectors)
    dtype = at_least_float32(feature_vectors, W_dec)
    features, rows = unit_rows(feature_vectors.to(dtype)), unit_rows(W_dec.to(dtype))
    tiles = slices_of_tiles((len(features), len(rows)), features.device)
    tiles = list(tiles) or [slice(0)]  # of no feature, too
    with full_precision(rows):
        nearest = [(features[tile] @ rows.T).max(dim=1) for tile in tiles]
    cosines, latents = (torch.cat(parts) for parts in zip(*nearest, strict=True))
    return latents, cosines


def _that_fit(W_dec: Tensor, feature_vectors: Tensor) -> tuple[Tensor, Tensor]:
    """A decoder and features, as `in_range` has them; there may be no feature."""
    W_dec, features = in_range(W_dec), in_range(feature_vectors, "feature_vectors", rows=0)
    checks.check_device("feature_vectors", features, W_dec)
    if features.shape[1] != W_dec.shape[1]:
        should = f"be [features, {W_dec.shape[1]}], as wide as `W_dec`"
        raise ValueError(checks.message("feature_vectors.shape", should, tuple(features.shape)))
    return W_dec, features


@torch.no_grad()
def latents_per_feature(
    W_dec: Float[Tensor, "d_sae d_in"],
    feature_vectors: Float[Tensor, "features d_in"],
    *,
    above: float = 0.5,
) -> Int[Tensor, " features"]:
    """Count the latents over which each true feature is split.

    Args:
        W_dec: The decoder.
        feature_vectors: The features' true directions.
        above: The cosine from which on a latent counts as one of the feature that it is the
            most similar to.

    Returns:
        A count for each feature, 0 for one that was not found.
    """
    checks.check_number("above", above, negative=True)
    W_dec, feature_vectors = _that_fit(W_dec, feature_vectors)
    features, cosines = latents_of_features(feature_vectors, W_dec)
    return features[cosines > above].bincount(minlength=len(feature_vectors))
