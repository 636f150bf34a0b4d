"""More processes than SAEs: each SAE has a group of them, which shares every batch.

Most of SAELens's losses are means over samples: with equal parts, the mean of the processes'
gradients is the gradient of the whole batch. What is not such a mean is exchanged.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from sae_lens import (
    BatchTopKTrainingSAE,
    GatedTrainingSAE,
    JumpReLUTrainingSAE,
    MatchingPursuitTrainingSAE,
    MatryoshkaBatchTopKTrainingSAE,
    StandardTrainingSAE,
    TopKTrainingSAE,
    TrainingSAE,
)
from sae_lens.registry import get_sae_training_class
from sae_lens.saes.abstopk_sae import AbsTopKTrainingSAE
from sae_lens.saes.batchtopk_sae import BatchTopK
from sae_lens.saes.sae import TrainStepOutput
from sae_lens.training.sae_trainer import SAETrainer
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.architectures.penalized import PenalizedMixin
from sae_lens_c2r.penalties.processes import gather_parts
from sae_lens_c2r.training.distributed import TIMEOUT, rank, world_size
from sae_lens_c2r.training.plan import Plan

# Of these it is known what a step takes from all of a batch.
KNOWN: set[type] = {
    AbsTopKTrainingSAE,
    BatchTopKTrainingSAE,
    GatedTrainingSAE,
    JumpReLUTrainingSAE,
    MatchingPursuitTrainingSAE,
    MatryoshkaBatchTopKTrainingSAE,
    StandardTrainingSAE,
    TopKTrainingSAE,
}


@dataclass(frozen=True)
class DataParallelGroup:
    """The processes that train the same SAEs as this one: they follow each other.

    Args:
        size: How many they are, the same in all groups.
        process_group: The processes; `None` where there is but one.
    """

    size: int
    process_group: ProcessGroup | None

    @property
    def number(self) -> int:
        """Which of the groups it is."""
        return rank() // self.size

    @property
    def count(self) -> int:
        """How many groups there are."""
        return world_size() // self.size

    @property
    def is_first(self) -> bool:
        """Whether this is the process of the group that saves."""
        return rank() % self.size == 0


def own_group(size: int) -> DataParallelGroup:
    """The group of this process, of so many; all processes have to ask for theirs."""
    if size == 1:
        return DataParallelGroup(1, None)
    groups = [
        dist.new_group(list(range(first, first + size)), timeout=TIMEOUT)
        for first in range(0, world_size(), size)
    ]
    return DataParallelGroup(size, groups[rank() // size])


def group_size(plan: Plan, n_ranks: int) -> int:
    """How many processes a batch of each SAE is split over.

    Args:
        plan: The plan.
        n_ranks: How many processes there are in all.

    Returns:
        Their number: 1 unless there are more processes than SAEs.

    Raises:
        UserError: If the SAEs cannot have equally many, or the batches no equal parts, or it
            is not known what an SAE takes from all of a batch.
    """
    n_saes = len(plan.saes)
    if n_ranks <= n_saes:
        return 1
    if n_ranks % n_saes:
        raise UserError(
            f"Processes should be at most as many as SAEs, {n_saes}, or a multiple of that. "
            f"Found {n_ranks} of them."
        )
    check_parts(plan.batch_size, n_ranks // n_saes)
    for sae_id, config in plan.saes.items():
        if not is_joinable(get_sae_training_class(config.architecture())[0]):
            raise UserError(
                f"Processes should be at most as many as SAEs, {n_saes}, where an architecture "
                f"is not SAELens's or ours: {sae_id} is {config.architecture()!r}. Found "
                f"{n_ranks} of them."
            )
    return n_ranks // n_saes


def is_joinable(sae_class: type[TrainingSAE[Any]]) -> bool:
    """Whether a class is one of SAELens's, with or without penalties of ours."""
    backbone = next(cls for cls in sae_class.__mro__ if not issubclass(cls, PenalizedMixin))
    return backbone in KNOWN


def check_parts(batch_size: int, n_parts: int) -> None:
    """Raise a UserError unless a batch has that many equal parts."""
    if batch_size % n_parts:  # a mean over samples would not be the mean of the parts' means
        raise UserError(
            f"A batch should have a multiple of {n_parts} samples, where {n_parts} processes "
            f"share it. Found {batch_size:,}."
        )


class DataParallelTrainer(SAETrainer[Any, Any]):
    """SAELens's trainer of one SAE, which takes a part of every batch and trains as on all.

    Every process of the group has such a trainer, with the same weights, and is given the
    same batches, whole: what SAELens estimates of them and counts of their samples is that of
    one process. So are the latents' counters after a step, and what is logged of it.

    Args:
        process_group: The processes.
        options: As of SAELens's trainer.

    Raises:
        UserError: If the batches have no equal parts.
    """

    def __init__(self, *, process_group: ProcessGroup, **options: Any) -> None:
        super().__init__(**options)
        self.process_group = process_group
        check_parts(self.cfg.train_batch_size_samples, dist.get_world_size(process_group))

    def _train_step(self, sae: TrainingSAE[Any], sae_in: Tensor) -> TrainStepOutput:
        n_parts = dist.get_world_size(self.process_group)
        check_parts(len(sae_in), n_parts)
        part = sae_in.chunk(n_parts)[dist.get_rank(self.process_group)]
        before = self.act_freq_scores
        self.act_freq_scores = torch.zeros_like(before)
        with joined_step(sae, self.process_group):
            output = super()._train_step(sae=sae, sae_in=part)
        fired = self.act_freq_scores
        dist.all_reduce(fired, group=self.process_group)
        self.act_freq_scores = before + fired
        self.n_forward_passes_since_fired[fired > 0] = 0
        return output

    def build_train_step_log_dict(
        self, output: TrainStepOutput, n_training_samples: int
    ) -> dict[str, Any]:
        """SAELens's log of a step, with the means over the processes."""
        whole = replace(
            output,
            sae_in=gather_parts(output.sae_in, self.process_group),
            sae_out=gather_parts(output.sae_out, self.process_group),
        )
        log = super().build_train_step_log_dict(whole, n_training_samples)
        # What else is logged they all have alike.
        names = sorted(name for name in log if name.startswith(("losses/", "metrics/")))
        means = torch.tensor(
            [log[name] for name in names], dtype=torch.float64, device=output.sae_in.device
        )
        dist.all_reduce(means, group=self.process_group)
        means /= dist.get_world_size(self.process_group)
        return {**log, **dict(zip(names, means.tolist(), strict=True))}


@contextmanager
def joined_step(sae: TrainingSAE[Any], process_group: ProcessGroup) -> Iterator[None]:
    """While it lasts, a forward and a backward pass are those of the joined batch.

    Every process of the group has the same weights, and a part of the batch that is as long
    as any other's. After the backward pass all have the gradients of the joined batch.

    Args:
        sae: This process's SAE. It is afterwards what it was.
        process_group: The processes.
    """
    with ExitStack() as stack:
        if isinstance(sae, PenalizedMixin):
            stack.enter_context(patch.object(sae, "process_group", process_group))
        if isinstance(sae.activation_fn, BatchTopK):
            joined = JoinedBatchTopK(sae.activation_fn.k, process_group)
            stack.enter_context(patch.object(sae, "activation_fn", joined))
        if isinstance(sae, BatchTopKTrainingSAE):
            update = sae.update_topk_threshold

            def update_jointly(acts: Tensor) -> None:
                update(smallest_positive(acts, process_group))  # all that it looks at

            stack.enter_context(patch.object(sae, "update_topk_threshold", update_jointly))

        def average(parameter: Tensor) -> None:
            """Average a gradient as soon as it is there: before SAELens clips it."""
            assert parameter.grad is not None
            total = parameter.grad.contiguous()
            dist.all_reduce(total, group=process_group)
            parameter.grad.copy_(total / dist.get_world_size(process_group))

        for parameter in sae.parameters():
            hook = parameter.register_post_accumulate_grad_hook(average)
            stack.callback(hook.remove)
        yield


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
    """The smallest positive activation of the joined batch, or 0: a tensor of one number."""
    smallest = acts.detach().masked_fill(acts <= 0, torch.inf).min().reshape(1)
    dist.all_reduce(smallest, dist.ReduceOp.MIN, group=process_group)
    return smallest.where(smallest.isfinite(), 0.0)
