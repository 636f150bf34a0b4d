"""Lengths and cosines of decoder rows, in at least float32, inside autocast and outside."""

import math
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sae_lens_c2r._support.checks import check_decoder, message

Rows = Float[Tensor, "d_sae d_in"]
PerLatent = Float[Tensor, " d_sae"]
Latents = Int[Tensor, " d_sae"]  # one for each
# What is worked on at once. A tile stays in a CPU's cache while it is reduced; an accelerator
# waits for calls, not for memory, and has the square of a chunk of 8,192 latents as one.
VALUES_PER_TILE = {"cpu": 2**20, "accelerator": 2**26}
CPU = "cpu"  # any other device is an accelerator


def edge_of_tiles(device: torch.device) -> int:
    """The rows and columns of a square tile. The device decides them, and nothing else."""
    return math.isqrt(VALUES_PER_TILE["cpu" if device.type == CPU else "accelerator"])


def slices_of_tiles(shape: tuple[int, ...], device: torch.device) -> list[slice]:
    """The rows of every tile of a matrix, at least one at a time."""
    size = max(1, edge_of_tiles(device) ** 2 // shape[1])
    return [slice(start, start + size) for start in range(0, shape[0], size)]


def full_precision(tensor: Tensor) -> AbstractContextManager[object]:
    """A context in which autocast does not lower the precision on the device of `tensor`."""
    kind = tensor.device.type
    if not torch.amp.is_autocast_available(kind):
        return nullcontext()
    return torch.autocast(device_type=kind, enabled=False)


def at_least_float32(*tensors: Tensor) -> torch.dtype:
    """The dtype that holds all `tensors` without loss, float32 or wider."""
    return reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)


def row_lengths(W_dec: Rows) -> tuple[PerLatent, PerLatent]:
    """L2 norms of the rows and their inverses, by one pass that all uses in a step share."""
    dtype, rows = at_least_float32(W_dec), W_dec.contiguous()  # all layouts are rounded alike
    lengths = torch.linalg.vector_norm(rows, dim=-1, dtype=dtype)
    # That of a zero row, or of one too short to be squared, is 0, and so are its cosines.
    too_short = lengths < torch.finfo(dtype).tiny ** 0.5
    return lengths, lengths.masked_fill(too_short, torch.inf).reciprocal()


@torch.no_grad()
def in_range(W_dec: Rows, name: str = "W_dec", *, rows: int = 1) -> Rows:
    """Rows to measure, checked: those whose squares are out of range are scaled, no others."""
    check_decoder(W_dec, name, rows=rows)
    if not W_dec.isfinite().all():
        raise ValueError(message(name, "be finite", "NaN or infinity"))
    highest = W_dec.abs().amax(dim=1, keepdim=True).to(at_least_float32(W_dec))
    is_out = (row_lengths(W_dec)[1][:, None] == 0) & (highest > 0)
    return torch.where(is_out, W_dec / highest, W_dec) if is_out.any() else W_dec


def unit_rows(W_dec: Rows) -> Rows:
    """The rows of `W_dec` scaled to norm 1; zero rows stay zero, with finite gradients."""
    rows = W_dec.to(at_least_float32(W_dec))
    if rows.dtype != W_dec.dtype and rows.requires_grad:  # the gradient may be beyond W_dec's
        rows.register_hook(lambda gradient: within_range(gradient, W_dec.dtype))
    return rows * row_lengths(rows)[1][:, None]


def within_range(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient with no entry that `dtype` cannot hold, in its own dtype still."""
    most = torch.finfo(dtype).max
    return gradient if gradient.dtype == dtype else gradient.clamp(-most, most)


def pair_cosines(
    W_dec: Rows, neighbors: Latents, inverse: PerLatent | None = None
) -> PerLatent:
    """Cosine of each decoder row with its neighbour's, differentiable; 0 for a lone latent."""
    if inverse is None:  # the rows' inverse lengths
        _, inverse = row_lengths(W_dec.detach())
    cosines: Tensor = _PairCosines.apply(W_dec, inverse.detach(), neighbors)  # type: ignore[no-untyped-call]
    return cosines.masked_fill(alone(neighbors), 0.0)


def alone(neighbors: Latents) -> Tensor:
    """Whether each latent is its own neighbour, having been alone in its chunk."""
    return neighbors == torch.arange(len(neighbors), device=neighbors.device)


class _PairCosines(torch.autograd.Function):
    r"""Cosines c of pairs of rows, of which the backward pass is left nothing but the rows.

    Autograd would keep both rows of every pair, several decoders in all. With g the gradient
    in c, that in W is S W for a sparse S of a diagonal and two entries for each pair:

    .. math::
        \frac{\partial c_i}{\partial w_i} =
        \frac{w_j}{\|w_i\| \|w_j\|} - \frac{c_i w_i}{\|w_i\|^2}, \qquad
        \frac{\partial c_i}{\partial w_j} =
        \frac{w_i}{\|w_i\| \|w_j\|} - \frac{c_i w_j}{\|w_j\|^2}.
    """

    @staticmethod
    def forward(W_dec: Tensor, inverse: Tensor, neighbors: Tensor) -> Tensor:
        dots = [
            W_dec[neighbors[rows]].to(inverse.dtype).mul_(W_dec[rows]).sum(dim=-1)
            for rows in slices_of_tiles(W_dec.shape, W_dec.device)
        ]
        return torch.cat(dots) * inverse * inverse[neighbors]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        # Of differentiable operations throughout, so that gradients of gradients are right.
        W_dec, inverse, neighbors, cosines = ctx.saved_tensors
        if torch.is_grad_enabled():
            _, inverse = row_lengths(W_dec)
        own = gradient * cosines
        own = own.index_add(0, neighbors, own) * inverse.square()
        weights = (gradient * inverse * inverse[neighbors])[:, None]
        in_rows = W_dec * -own[:, None]
        for rows in slices_of_tiles(W_dec.shape, W_dec.device):
            others = W_dec[neighbors[rows]].to(in_rows.dtype)
            in_rows[rows].addcmul_(weights[rows], others)
            in_rows.index_add_(0, neighbors[rows], weights[rows] * W_dec[rows])
        return within_range(in_rows, W_dec.dtype).to(W_dec.dtype), None, None
