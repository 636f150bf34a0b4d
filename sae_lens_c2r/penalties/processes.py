"""Exchange between processes that share one batch.

Every process of the group has to make the same calls, in the same order. Where no group is
given, the batch is this process's, and nothing is sent.
"""

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor
from torch.distributed import ProcessGroup


def gather_samples(
    values: Float[Tensor, " samples"], process_group: ProcessGroup | None
) -> Float[Tensor, " joined"]:
    """One value for each sample of the joined batch, and NaN where a part is shorter."""
    if process_group is None:
        return values
    longest = torch.tensor(len(values), device=values.device)
    dist.all_reduce(longest, dist.ReduceOp.MAX, group=process_group)
    padded = values.new_full((int(longest),), torch.nan)
    padded[: len(values)] = values
    return gather_parts(padded, process_group)


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
