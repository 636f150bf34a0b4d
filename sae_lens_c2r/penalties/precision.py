"""Arithmetic in at least float32, inside autocast and outside it."""

import torch
from jaxtyping import Float
from torch import Tensor


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
    W_dec = _widened(W_dec)
    # Brought near 1 first: the squares of very long or short rows leave the dtype's range.
    largest = W_dec.detach().abs().amax(dim=-1, keepdim=True)
    largest = torch.where(largest > 0, largest, 1.0)
    W_dec = W_dec / largest
    norms = torch.linalg.vector_norm(W_dec, dim=-1, keepdim=True)
    norms = torch.where(norms > 0, norms, 1.0)
    return W_dec / norms, norms * largest


def _widened(tensor: Tensor) -> Tensor:
    """The tensor in float32 or wider, its gradient held within the range of its own dtype."""
    wide = tensor.to(at_least_float32(tensor))
    if wide.dtype != tensor.dtype and wide.requires_grad:
        wide.register_hook(lambda gradient: within_range(gradient, tensor.dtype))
    return wide


def within_range(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient with no entry that `dtype` cannot hold, in its own dtype still."""
    most = torch.finfo(dtype).max
    return gradient.clamp(-most, most)
