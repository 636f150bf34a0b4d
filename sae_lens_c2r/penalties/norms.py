"""Norms of the latents' activations over the batch."""

from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor
from torch.distributed import ProcessGroup

from sae_lens_c2r.penalties.tiles import slices_of_tiles


def batch_norms(
    feature_acts: Float[Tensor, "*batch d_sae"],
    dtype: torch.dtype,
    process_group: ProcessGroup | None = None,
) -> Float[Tensor, " d_sae"]:
    """L2 norm of each latent's activations over the joined batch, with gradient 0 at 0."""
    if feature_acts.is_sparse:
        acts = feature_acts.coalesce()
        energy = torch.zeros(acts.shape[-1], dtype=dtype, device=acts.device)
        squares = acts.values().to(dtype).square()
        norms = _root(energy.index_add(0, acts.indices()[-1], squares))
    else:
        norms = _BatchNorms.apply(feature_acts.flatten(0, -2), dtype)  # type: ignore[no-untyped-call]
    if process_group is None:
        return norms
    # The backward pass sums the processes' gradients, as that of a sum of their losses.
    # Averaged over the processes, as DistributedDataParallel does, gradients are the joined
    # batch's.
    return _root(_Sum.apply(norms.square(), process_group))  # type: ignore[no-untyped-call]


def _root(energy: Float[Tensor, " d_sae"]) -> Float[Tensor, " d_sae"]:
    """Square roots, with gradient 0 instead of infinity at 0. A NaN stays one."""
    return torch.where(energy == 0, 0.0, torch.where(energy == 0, 1.0, energy).sqrt())


class _BatchNorms(torch.autograd.Function):
    """Norms of the columns of a matrix, a tile at a time.

    Torch's own are slow along this axis of a CPU's memory, and widen the whole of a matrix
    of lower precision for the backward pass.
    """

    @staticmethod
    def forward(feature_acts: Tensor, dtype: torch.dtype) -> Tensor:
        energy = torch.zeros(feature_acts.shape[1], dtype=dtype, device=feature_acts.device)
        for rows in slices_of_tiles(feature_acts.shape, feature_acts.device):
            energy += feature_acts[rows].to(dtype).square().sum(dim=0)
        return energy.sqrt()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, torch.dtype], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # Of differentiable operations throughout, so that gradients of gradients are right.
        feature_acts, norms = ctx.saved_tensors
        silent = norms == 0
        weights = torch.where(silent, 0.0, gradient / torch.where(silent, 1.0, norms))
        in_acts = torch.empty_like(feature_acts)
        for rows in slices_of_tiles(feature_acts.shape, feature_acts.device):
            in_acts[rows] = feature_acts[rows] * weights
        return in_acts, None


class _Sum(torch.autograd.Function):
    """The sum over the processes, in the backward pass as well."""

    @staticmethod
    def forward(addend: Tensor, process_group: ProcessGroup) -> Tensor:
        total = addend.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=process_group)
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ProcessGroup], _: Tensor) -> None:
        ctx.process_group = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Sum.apply(gradient, ctx.process_group), None  # type: ignore[no-untyped-call]
