"""The C2R penalty, Eq. (16) of the paper, and its two ablations."""

from functools import partial
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.utils.checkpoint import checkpoint

from sae_lens_c2r._support.checks import (
    check_choice,
    check_chunk_size,
    check_decoder,
    check_device,
    check_feature_acts,
    check_neighbors,
    check_number,
    check_process_group,
    message,
)
from sae_lens_c2r.penalties.cosines import (
    alone,
    at_least_float32,
    full_precision,
    pair_cosines,
    unit_rows,
)
from sae_lens_c2r.penalties.gates import Gate, squared_gate
from sae_lens_c2r.penalties.neighbors import draw_chunks, nearest_neighbors
from sae_lens_c2r.penalties.norms import batch_norms
from sae_lens_c2r.penalties.tiles import slices_of_tiles

Pairs = Literal["nearest", "all"]


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

    Eq. (16) of the paper, where a = 1, with the neighbours :math:`j^*` of
    `nearest_neighbors`. Gradients flow into `feature_acts` (consistency) and, through
    :math:`\rho`, into `W_dec` (orthogonality); the choice of neighbours is not
    differentiated. The paper's ablations sum over every other latent of the chunk in place of
    :math:`j^*(i)` (NoNNR, ``pairs="all"``), or put 1 in place of :math:`\rho_i^2`
    (NoRCG, ``gate="none"``).

    Args:
        feature_acts: Activations Z, shape ``[..., d_sae]``; all leading dimensions together
            are the batch. In units of unit-norm decoder rows: where the decoder is not
            normalized, multiply latent i by ``||W_dec[i]||`` first. Dense or sparse COO.
        W_dec: Decoder, shape ``[d_sae, d_in]``. The length of its rows does not matter.
        chunk_size: Latents among which a neighbour is searched, see `nearest_neighbors`.
        exponent: The exponent a > 0.
        pairs: ``"nearest"`` or ``"all"``. All pairs take memory for one tile of a chunk's
            cosines at a time, in the backward pass as well.
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
        TypeError: If a tensor is not of floating point (`neighbors`: not int64), or
            `chunk_size` not an integer.
        ValueError: If shapes, layouts or devices do not match or the device holds no data, the
            batch is empty, `chunk_size` is below 2, `exponent` is not a finite number above 0,
            `pairs` or `gate` is unknown, or `neighbors` are given for all pairs.
    """
    check_decoder(W_dec)
    check_feature_acts(feature_acts, d_sae=len(W_dec))
    check_device("feature_acts", feature_acts, W_dec)
    check_number("exponent", exponent, positive=True)
    check_chunk_size("chunk_size", chunk_size)
    check_process_group(process_group)
    check_choice("pairs", pairs, get_args(Pairs))
    check_choice("gate", gate, get_args(Gate))
    if pairs == "all" and neighbors is not None:
        raise ValueError(message("neighbors", 'be None where `pairs = "all"`', neighbors))
    norms = batch_norms(feature_acts, at_least_float32(feature_acts, W_dec), process_group)
    if pairs == "all":
        chunks = draw_chunks(W_dec, chunk_size, generator, process_group)
        return penalty_of_all_pairs(norms, W_dec, chunks, exponent, gate)
    if neighbors is None:
        neighbors = nearest_neighbors(
            W_dec, chunk_size=chunk_size, generator=generator, process_group=process_group
        )
    check_neighbors(neighbors, W_dec)
    cosines = pair_cosines(W_dec, neighbors)
    return penalty_of_neighbors(norms, cosines, neighbors, exponent, gate)


def penalty_of_neighbors(
    norms: Float[Tensor, " d_sae"],
    cosines: Float[Tensor, " d_sae"],
    neighbors: Int[Tensor, " d_sae"],
    exponent: float,
    gate: Gate,
) -> Float[Tensor, ""]:
    """Eq. (16) for given batch norms, neighbours, cosines with them and gate."""
    gates = squared_gate(cosines, gate).masked_fill(alone(neighbors), 0.0)
    return (gates * _power(norms + norms[neighbors], exponent)).mean()


def penalty_of_all_pairs(
    norms: Float[Tensor, " d_sae"],
    W_dec: Float[Tensor, "d_sae d_in"],
    chunks: tuple[Int[Tensor, " _chunk"], ...],
    exponent: float,
    gate: Gate,
) -> Float[Tensor, ""]:
    """The ablations' sum over all pairs of every chunk, for given batch norms."""
    # Tiles are gathered and computed again in the backward pass: kept, those of all chunks, or
    # only the rows gathered for them, would fill the memory.
    again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
    unit = unit_rows(W_dec)
    total = norms.new_zeros(())
    for chunk in chunks:
        shape = len(chunk), len(chunks[0])
        for tile in slices_of_tiles(shape, unit.device):
            total = total + again(_tile_of_pairs, unit, norms, chunk, tile, exponent, gate)
    return total / len(W_dec)


def _tile_of_pairs(
    unit: Float[Tensor, "d_sae d_in"],
    norms: Float[Tensor, " d_sae"],
    chunk: Int[Tensor, " chunk"],
    tile: slice,
    exponent: float,
    gate: Gate,
) -> Float[Tensor, ""]:
    """Sum over the pairs of a few of a chunk's latents with all others."""
    rows = chunk[tile]
    terms = _power(norms[rows, None] + norms[chunk], exponent)
    if gate != "none":  # without a gate no cosines are needed
        with full_precision(unit):
            terms = squared_gate(unit[rows] @ unit[chunk].T, gate) * terms
    itself = torch.ones_like(terms, dtype=torch.bool).triu(tile.start).tril(tile.start)
    return terms.masked_fill(itself, 0.0).sum()


def _power(base: Float[Tensor, "*shape"], exponent: float) -> Float[Tensor, "*shape"]:
    """``base ** exponent`` for base >= 0, with gradient 0 instead of infinity at 0."""
    if exponent == 1:
        return base
    silent = base == 0  # a NaN stays one
    return torch.where(silent, 0.0, torch.where(silent, 1.0, base) ** exponent)
