"""Directions and cosines of decoder rows, in at least float32, inside autocast and outside."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sae_lens_c2r.penalties.tiles import slices_of_tiles


def full_precision(tensor: Tensor) -> torch.autocast:
    """A context in which autocast does not lower the precision on the device of `tensor`."""
    return torch.autocast(device_type=tensor.device.type, enabled=False)


def at_least_float32(*tensors: Tensor) -> torch.dtype:
    """The dtype that holds all `tensors` without loss, float32 or wider."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def unit_rows(W_dec: Float[Tensor, "d_sae d_in"]) -> Float[Tensor, "d_sae d_in"]:
    """The rows of `W_dec` scaled to norm 1; zero rows stay zero, with finite gradients."""
    return unit_rows_and_lengths(W_dec)[0]


def unit_rows_and_lengths(
    W_dec: Float[Tensor, "d_sae d_in"],
) -> tuple[Float[Tensor, "d_sae d_in"], Float[Tensor, "d_sae 1"]]:
    """Unit rows and their lengths, whose products are the rows; of a zero row, 0 and 1."""
    rows = W_dec.to(at_least_float32(W_dec))
    if rows.dtype != W_dec.dtype and rows.requires_grad:  # the gradient may be beyond W_dec's
        rows.register_hook(lambda gradient: within_range(gradient, W_dec.dtype))
    # Brought near 1 first: the squares of very long or short rows leave the dtype's range.
    largest = rows.detach().abs().amax(dim=-1, keepdim=True)
    largest = torch.where(largest > 0, largest, 1.0)
    rows = rows / largest
    norms = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    norms = torch.where(norms > 0, norms, 1.0)
    return rows / norms, norms * largest


def within_range(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient with no entry that `dtype` cannot hold, in its own dtype still."""
    most = torch.finfo(dtype).max
    return gradient.clamp(-most, most)


def pair_cosines(
    W_dec: Float[Tensor, "d_sae d_in"], neighbors: Int[Tensor, " d_sae"]
) -> Float[Tensor, " d_sae"]:
    """Cosine of each decoder row with its neighbour's, differentiable; 0 for a lone latent."""
    cosines: Tensor = _PairCosines.apply(W_dec, neighbors)  # type: ignore[no-untyped-call]
    return torch.where(alone(neighbors), 0.0, cosines)


def alone(neighbors: Int[Tensor, " d_sae"]) -> Tensor:
    """Whether each latent is its own neighbour, having been alone in its chunk."""
    return neighbors == torch.arange(len(neighbors), device=neighbors.device)


class _PairCosines(torch.autograd.Function):
    r"""Cosines of pairs of rows, of which the backward pass is left nothing but the rows.

    Autograd would keep both unit rows of every pair, several decoders in all. Here they are
    made again, a tile at a time, for

    .. math::
        \frac{\partial \rho}{\partial w_i} = \frac{\hat w_j - \rho \hat w_i}{\|w_i\|}, \qquad
        \frac{\partial \rho}{\partial w_j} = \frac{\hat w_i - \rho \hat w_j}{\|w_j\|}.
    """

    @staticmethod
    def forward(W_dec: Tensor, neighbors: Tensor) -> Tensor:
        tiles = [
            (unit_rows(W_dec[rows]) * unit_rows(W_dec[neighbors[rows]])).sum(dim=-1)
            for rows in slices_of_tiles(W_dec.shape, W_dec.device)
        ]
        return torch.cat(tiles)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], _: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # Of differentiable operations throughout, so that gradients of gradients are right.
        W_dec, neighbors = ctx.saved_tensors
        in_rows = torch.zeros_like(W_dec, dtype=at_least_float32(W_dec))
        for rows in slices_of_tiles(W_dec.shape, W_dec.device):
            left, left_lengths = unit_rows_and_lengths(W_dec[rows])
            right, right_lengths = unit_rows_and_lengths(W_dec[neighbors[rows]])
            cosines = (left * right).sum(dim=-1, keepdim=True)
            weights = gradient[rows, None]
            in_rows[rows] += weights / left_lengths * (right - cosines * left)
            in_rows.index_add_(
                0, neighbors[rows], weights / right_lengths * (left - cosines * right)
            )
        return within_range(in_rows, W_dec.dtype).to(W_dec.dtype), None
