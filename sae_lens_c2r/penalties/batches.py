"""Norms over a batch, or over one that processes share, which then make the same calls."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from sae_lens_c2r._support.checks import message
from sae_lens_c2r.penalties.cosines import CPU, PerLatent, at_least_float32, slices_of_tiles


def batch_norms(
    feature_acts: Tensor, dtype: torch.dtype, process_group: ProcessGroup | None = None
) -> PerLatent:
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
    # The backward pass sums the processes' gradients, as that of a sum of their losses: their
    # average, which DistributedDataParallel takes, is the joined batch's.
    return _root(_Sum.apply(norms.square(), process_group))  # type: ignore[no-untyped-call]


def _root(energy: PerLatent) -> PerLatent:
    """Square roots, with gradient 0 instead of infinity at 0. A NaN stays one."""
    silent = energy == 0
    return energy.masked_fill(silent, 1.0).sqrt().masked_fill(silent, 0.0)


class _BatchNorms(torch.autograd.Function):
    """Norms of the columns of a matrix.

    Torch's own are slow along this axis of a CPU's memory, and widen the whole of a matrix of
    lower precision for the backward pass.
    """

    @staticmethod
    def forward(feature_acts: Tensor, dtype: torch.dtype) -> Tensor:
        if feature_acts.device.type != CPU:
            return torch.linalg.vector_norm(feature_acts, dim=0, dtype=dtype)
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
        weights = gradient / norms.masked_fill(norms == 0, torch.inf)
        if feature_acts.dtype == weights.dtype:
            return feature_acts * weights, None
        in_acts = torch.empty_like(feature_acts)
        for rows in slices_of_tiles(feature_acts.shape, feature_acts.device):
            in_acts[rows] = feature_acts[rows] * weights
        return in_acts, None


class _Sum(torch.autograd.Function):
    """The sum over the processes, in the backward pass as well."""

    @staticmethod
    def forward(ctx: Any, addend: Tensor, process_group: ProcessGroup) -> Tensor:
        ctx.process_group = process_group
        total = addend.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=process_group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Sum.apply(gradient, ctx.process_group), None  # type: ignore[no-untyped-call]


@torch.no_grad()
def typical_norm(sae_in: Tensor, *, process_group: ProcessGroup | None = None) -> Tensor:
    """Median L2 norm of the rows of the joined batch that are not 0, detached; 0 of none."""
    if process_group is None and not sae_in.numel():  # a process may have no part of a batch
        raise ValueError(message("sae_in.shape", "have no 0", tuple(sae_in.shape)))
    # A mean would be driven by a few massive tokens: a BOS token's norm can be 30 times the
    # others'. Zeros, from padding or a silent generator, say nothing of the scale.
    norms = torch.linalg.vector_norm(sae_in, dim=-1, dtype=at_least_float32(sae_in)).flatten()
    if process_group is not None:  # parts may differ in size
        padded = norms.new_zeros(total(len(norms), process_group, norms.device))
        padded[: len(norms)] = norms
        norms = gather_parts(padded, process_group)
    ordered = norms.sort(descending=True).values  # `nanmedian` would wait for the device
    return ordered.index_select(0, (ordered > 0).sum() // 2).squeeze(0)


def gather_parts(part: Tensor, process_group: ProcessGroup) -> Tensor:
    """The processes' tensors, which have one shape, after each other, without a gradient."""
    part = part.detach().contiguous()
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size(process_group))]
    dist.all_gather(parts, part, group=process_group)
    return torch.cat(parts)


def total(number: int, process_group: ProcessGroup | None, device: torch.device) -> int:
    """The sum of a number over the processes, sent by a device that the group can read."""
    if process_group is None:
        return number
    sent = torch.tensor(number, device=device)
    dist.all_reduce(sent, group=process_group)
    return int(sent)
