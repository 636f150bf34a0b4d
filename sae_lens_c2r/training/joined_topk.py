"""BatchTopK over a batch that is split over processes: what it keeps of all parts together."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from sae_lens_c2r.penalties.processes import gather_parts


class JoinedBatchTopK(nn.Module):
    """SAELens's `BatchTopK`, which keeps k activations a sample of the joined batch.

    Args:
        k: Activations that are kept, in mean over the samples.
        process_group: Processes that have equal parts of the batch.
    """

    def __init__(self, k: float, process_group: ProcessGroup) -> None:
        super().__init__()
        self.k = k
        self.process_group = process_group

    def forward(self, x: Tensor) -> Tensor:
        """This process's activations, all but the joined batch's largest set to 0."""
        acts = x.relu()
        flat_acts = acts.flatten()
        n_samples = acts.shape[:-1].numel() * dist.get_world_size(self.process_group)
        n_kept = int(self.k * n_samples)
        # No process can have more of the largest than all of them.
        values, indices = flat_acts.topk(min(n_kept, len(flat_acts)))
        own = _kept(values, n_kept, self.process_group)
        kept = torch.zeros_like(flat_acts).scatter(-1, indices[own], values[own])
        return kept.reshape(acts.shape)


@torch.compiler.disable
def _kept(candidates: Tensor, n_kept: int, process_group: ProcessGroup) -> Tensor:
    """Which of this process's candidates are among the largest of all."""
    everywhere = gather_parts(candidates, process_group)
    # Of equal ones those of the first processes, so that all processes choose alike.
    largest = everywhere.argsort(descending=True, stable=True)[:n_kept]
    kept = torch.zeros_like(everywhere, dtype=torch.bool)
    kept[largest] = True
    before = dist.get_rank(process_group) * len(candidates)
    return kept[before : before + len(candidates)]


def smallest_positive(acts: Tensor, process_group: ProcessGroup) -> Tensor:
    """The smallest positive activation of the joined batch, or 0 where there is none.

    Args:
        acts: This process's activations.
        process_group: The processes.

    Returns:
        A tensor of one number.
    """
    smallest = acts.detach().masked_fill(acts <= 0, torch.inf).min().reshape(1)
    dist.all_reduce(smallest, dist.ReduceOp.MIN, group=process_group)
    return smallest.where(smallest.isfinite(), 0.0)
