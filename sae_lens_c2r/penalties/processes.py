"""Exchange between processes that share one batch.

Every process of the group has to make the same calls, in the same order. Where no group is
given, the batch is this process's, and nothing is sent.
"""

from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributed import ProcessGroup

from sae_lens_c2r.penalties.norms import root


def all_reduce_norms(
    norms: Float[Tensor, " d_sae"], process_group: ProcessGroup | None
) -> Float[Tensor, " d_sae"]:
    """L2 norms over the joined batch: roots of the sums of the parts' squared norms."""
    # The backward pass sums the processes' gradients, as that of a sum of their losses.
    # Averaged over the processes, as DistributedDataParallel does, gradients are the joined
    # batch's.
    if process_group is None:
        return norms
    energy: Tensor = _Sum.apply(norms.square(), process_group)  # type: ignore[no-untyped-call]
    return root(energy)


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


def join_samples(
    values: Float[Tensor, " samples"], process_group: ProcessGroup | None
) -> Float[Tensor, " joined"]:
    """One value for each sample of the joined batch, of whose parts none need be as long."""
    if process_group is None:
        return values
    sizes = gather_parts(torch.tensor([len(values)], device=values.device), process_group)
    longest = int(sizes.max())
    padded = values.new_zeros(longest)
    padded[: len(values)] = values
    parts = gather_parts(padded, process_group).split(longest)
    return torch.cat([part[:size] for part, size in zip(parts, sizes.tolist(), strict=True)])


def gather_parts(part: Tensor, process_group: ProcessGroup) -> Tensor:
    """The processes' tensors, which have one shape, after each other, without a gradient."""
    part = part.detach().contiguous()
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size(process_group))]
    dist.all_gather(parts, part, group=process_group)
    return torch.cat(parts)


def total(number: int, process_group: ProcessGroup | None, *, device: torch.device) -> int:
    """The sum of a number over the processes, sent by a device that the group can read."""
    if process_group is None:
        return number
    sent = torch.tensor(number, device=device)
    dist.all_reduce(sent, group=process_group)
    return int(sent)


def broadcast_(values: Tensor, process_group: ProcessGroup | None) -> None:
    """Take over, in place, the values that the first process of the group has."""
    if process_group is not None:
        dist.broadcast(values, src=dist.get_global_rank(process_group, 0), group=process_group)


def share_of(n_chunks: int, process_group: ProcessGroup | None) -> range:
    """The chunks of a search that are this process's."""
    if process_group is None:
        return range(n_chunks)
    own, n_processes = dist.get_rank(process_group), dist.get_world_size(process_group)
    return range(own, n_chunks, n_processes)


def join_shares(neighbors: Int[Tensor, " d_sae"], process_group: ProcessGroup | None) -> None:
    """Fill in, in place, what other processes have found; what is theirs has to be 0."""
    if process_group is not None:
        dist.all_reduce(neighbors, group=process_group)
