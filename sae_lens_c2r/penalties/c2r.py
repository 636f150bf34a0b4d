"""The C2R penalty, Eq. (16) of the paper, its two ablations, and OrtSAE's penalty."""

from functools import partial
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.utils.checkpoint import checkpoint

from sae_lens_c2r._support import checks
from sae_lens_c2r.penalties.batches import batch_norms
from sae_lens_c2r.penalties.cosines import (
    Latents,
    PerLatent,
    Rows,
    alone,
    at_least_float32,
    full_precision,
    pair_cosines,
    row_lengths,
    slices_of_tiles,
    unit_rows,
)
from sae_lens_c2r.penalties.neighbors import Draw, draw_chunks, search

Gate = Literal["relu", "none"]  # the paper's, and its ablation NoRCG
Pairs = Literal["nearest", "all"]  # the paper's, and its ablation NoNNR


def c2r_penalty(
    feature_acts: Tensor,
    W_dec: Tensor,
    *,
    chunk_size: int | None = 8192,
    exponent: float = 1.0,
    pairs: Pairs = "nearest",
    gate: Gate = "relu",
    neighbors: Tensor | None = None,
    generator: torch.Generator | None = None,
    process_group: ProcessGroup | None = None,
) -> Tensor:
    r"""Batch norms of each latent and its nearest neighbour, gated by their squared cosine.

    .. math::
        \mathcal L_{C^2R} = \frac 1k \sum_{i=1}^k \rho_i^2 \,
        \bigl( \|Z_{:,i}\|_2 + \|Z_{:,j^*(i)}\|_2 \bigr)^a, \qquad
        \rho_i = \operatorname{ReLU}(\langle \hat w_i, \hat w_{j^*(i)} \rangle)

    Eq. (16) of the paper, where a = 1, with the neighbours :math:`j^*` of `nearest_neighbors`.
    Gradients flow into `feature_acts` (consistency) and, through :math:`\rho`, into `W_dec`
    (orthogonality); the choice of neighbours is not differentiated. The paper's ablations sum
    over every other latent of the chunk in place of :math:`j^*(i)` (NoNNR, ``pairs="all"``),
    or put 1 in place of :math:`\rho_i^2` (NoRCG, ``gate="none"``).

    Args:
        feature_acts: Activations Z, shape ``[..., d_sae]``; all leading dimensions together
            are the batch. In units of unit-norm decoder rows: where the decoder is not
            normalized, multiply latent i by ``||W_dec[i]||`` first. Dense or sparse COO.
        W_dec: Decoder, shape ``[d_sae, d_in]``. The length of its rows does not matter, from
            1e-18 to 1e18 (in float64, 1e-150 to 1e150): their squares must be in range.
        chunk_size: Latents among which a neighbour is searched, see `nearest_neighbors`.
        exponent: The exponent a > 0.
        pairs: ``"nearest"`` or ``"all"``, of which one tile is in memory at a time.
        gate: ``"relu"`` or ``"none"``.
        neighbors: int64 tensor of shape ``[d_sae]`` to use instead of searching. A latent
            that is its own neighbour contributes 0.
        generator: Draws the chunks, see `nearest_neighbors`.
        process_group: Processes over which a batch is split. Each calls this with its part
            and the same decoder, and gets the penalty of the joined batch. Gradients averaged
            over the processes, as DistributedDataParallel does, are those of that penalty.

    Returns:
        Scalar >= 0 in float32, or float64 where an input is float64, in autocast too.

    Raises:
        TypeError: If `neighbors` are not int64, or `chunk_size` not an integer.
        ValueError: If shapes or devices do not match or the device holds no data, the batch is
            empty, `chunk_size` is below 2, `exponent` is not a finite number above 0, `pairs`
            or `gate` is unknown, or `neighbors` are given for all pairs.
    """
    checks.check_decoder(W_dec)
    checks.check_feature_acts(feature_acts, d_sae=len(W_dec))
    checks.check_device("feature_acts", feature_acts, W_dec)
    checks.check_number("exponent", exponent, positive=True)
    checks.check_draw(chunk_size, process_group)
    checks.check_choice("pairs", pairs, get_args(Pairs))
    checks.check_choice("gate", gate, get_args(Gate))
    if neighbors is not None:
        checks.check_neighbors(neighbors, W_dec)
        if pairs == "all":
            should = 'be None where `pairs = "all"`'
            raise ValueError(checks.message("neighbors", should, neighbors))
    draw, (_, inverse) = (chunk_size, generator, process_group), row_lengths(W_dec.detach())
    options = exponent, pairs, gate, neighbors, draw
    return evaluate(feature_acts, W_dec, inverse, None, *options)[0]


def evaluate(
    feature_acts: Float[Tensor, "*batch d_sae"],
    W_dec: Rows,
    inverse: PerLatent,
    lengths: PerLatent | None,
    exponent: float,
    pairs: Pairs,
    gate: Gate,
    neighbors: Latents | None,
    draw: Draw,
) -> tuple[Tensor, PerLatent | None]:
    """`c2r_penalty`, unchecked, and the cosines with nearest neighbours."""
    # The rows' `lengths` are given where activations are not in units of unit-norm rows yet.
    norms = batch_norms(feature_acts, at_least_float32(feature_acts, W_dec), draw[-1])
    if lengths is not None:
        norms = norms * lengths
    if pairs == "all":
        chunks = draw_chunks(W_dec, draw)
        return penalty_of_all_pairs(norms, W_dec, chunks, exponent, gate), None
    if neighbors is None:
        neighbors = search(W_dec, inverse, draw)
    cosines = pair_cosines(W_dec, neighbors, inverse)
    return penalty_of_neighbors(norms, cosines, neighbors, exponent, gate), cosines


def squared_gate(cosines: Tensor, gate: Gate) -> Tensor:
    """How much pairs are pulled for their cosines, rho^2 in Eq. (16); 1 without a gate."""
    return torch.ones_like(cosines) if gate == "none" else cosines.clamp(0, 1).square()


def penalty_of_neighbors(
    norms: PerLatent, cosines: PerLatent, neighbors: Latents, exponent: float, gate: Gate
) -> Tensor:
    """Eq. (16) for given batch norms, neighbours, cosines with them and gate."""
    gates = squared_gate(cosines, gate)
    if gate == "none":  # of a lone latent the cosine is 0, and its square
        gates = gates.masked_fill(alone(neighbors), 0.0)
    sums = norms + norms.index_select(0, neighbors)  # faster to differentiate than an index
    return (gates * _power(sums, exponent)).mean()


def penalty_of_all_pairs(
    norms: PerLatent, W_dec: Rows, chunks: tuple[Tensor, ...], exponent: float, gate: Gate
) -> Tensor:
    """The ablations' sum over all pairs of every chunk, for given batch norms."""
    unit = unit_rows(W_dec)

    def sum_of_tile(unit: Tensor, norms: Tensor, chunk: Tensor, tile: slice) -> Tensor:
        terms = _power(norms[chunk[tile], None] + norms[chunk], exponent)
        if gate != "none":  # without a gate no cosines are needed
            with full_precision(unit):
                terms = squared_gate(unit[chunk[tile]] @ unit[chunk].T, gate) * terms
        itself = torch.ones_like(terms, dtype=torch.bool).triu(tile.start).tril(tile.start)
        return terms.masked_fill(itself, 0.0).sum()

    # Tiles are gathered and computed again in the backward pass: kept, those of all chunks, or
    # only the rows gathered for them, would fill the memory.
    again = partial(checkpoint, sum_of_tile, use_reentrant=False, preserve_rng_state=False)
    total = norms.new_zeros(())
    for chunk in chunks:
        for tile in slices_of_tiles((len(chunk), len(chunks[0])), unit.device):
            total = total + again(unit, norms, chunk, tile)
    return total / len(W_dec)


def _power(base: Float[Tensor, "*shape"], exponent: float) -> Float[Tensor, "*shape"]:
    """``base ** exponent`` for base >= 0, with gradient 0 instead of infinity at 0."""
    if exponent == 1:
        return base
    silent = base == 0  # a NaN stays one
    return (base.masked_fill(silent, 1.0) ** exponent).masked_fill(silent, 0.0)


def orthogonality_penalty(
    W_dec: Tensor,
    *,
    chunk_size: int | None = 8192,
    neighbors: Tensor | None = None,
    generator: torch.Generator | None = None,
    process_group: ProcessGroup | None = None,
) -> Tensor:
    r"""Mean squared positive cosine of the decoder rows with their nearest neighbours.

    .. math::
        \mathcal L_{ort} = \frac 1k \sum_{i=1}^k \rho_i^2, \qquad
        \rho_i = \operatorname{ReLU}(\langle \hat w_i, \hat w_{j^*(i)} \rangle)

    The term of OrtSAE (Korznikov et al., 2025), beside and on top of which the paper tries C2R.

    Args:
        W_dec: Decoder, as of `c2r_penalty`.
        chunk_size: Latents among which a neighbour is searched, see `nearest_neighbors`.
        neighbors: int64 tensor of shape ``[d_sae]`` to use instead of searching.
        generator: Draws the chunks, see `nearest_neighbors`.
        process_group: Processes that share the search, see `nearest_neighbors`.

    Returns:
        Scalar from 0 to 1 in float32, or float64 where `W_dec` is float64, in autocast too.

    Raises:
        TypeError: If `neighbors` are not int64, or `chunk_size` not an integer.
        ValueError: If shapes or devices do not match, or `chunk_size` is below 2.
    """
    checks.check_decoder(W_dec)
    checks.check_draw(chunk_size, process_group)
    _, inverse = row_lengths(W_dec.detach())
    if neighbors is None:
        neighbors = search(W_dec, inverse, (chunk_size, generator, process_group))
    checks.check_neighbors(neighbors, W_dec)
    return squared_gate(pair_cosines(W_dec, neighbors, inverse), "relu").mean()
