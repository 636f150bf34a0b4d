"""More processes than SAEs: each SAE has a group of them, which shares every batch.

Most of SAELens's losses are means over samples: with equal parts, the mean of the processes'
gradients is the gradient of the whole batch. What is not such a mean is exchanged.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from sae_lens import BatchTopKTrainingSAE, TrainingSAE, saes
from sae_lens.registry import get_sae_training_class
from sae_lens.saes.batchtopk_sae import BatchTopK
from sae_lens.saes.sae import TrainingSAEConfig, TrainStepOutput
from sae_lens.training.sae_trainer import SAETrainer
from torch import Tensor
from torch.distributed import ProcessGroup

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.architectures.penalized import PenalizedMixin
from sae_lens_c2r.penalties.batches import gather_parts
from sae_lens_c2r.training.plan import Plan

# SAEs of which it is known what a step needs of the whole batch.
KNOWN: set[type] = {
    *(saes.AbsTopKTrainingSAE, saes.BatchTopKTrainingSAE, saes.GatedTrainingSAE),
    *(saes.JumpReLUTrainingSAE, saes.MatchingPursuitTrainingSAE, saes.StandardTrainingSAE),
    *(saes.MatryoshkaBatchTopKTrainingSAE, saes.TopKTrainingSAE),
}


def group_size(plan: Plan, n_ranks: int) -> int:
    """How many processes a batch of each SAE is split over; a UserError if it cannot be."""
    n_saes = len(plan.saes)
    if n_ranks <= n_saes:
        return 1
    if n_ranks % n_saes:
        raise UserError(
            f"There should be at most as many processes as SAEs, {n_saes}, or a multiple of "
            f"that number. Found {n_ranks}."
        )
    check_parts(plan.batch_size, n_ranks // n_saes)
    for sae_id, config in plan.saes.items():
        if not is_joinable(get_sae_training_class(config.architecture())[0]):
            raise UserError(
                f"There should be at most as many processes as SAEs, {n_saes}, where an "
                f"architecture is neither SAELens's nor ours: {sae_id} is "
                f"{config.architecture()!r}. Found {n_ranks}."
            )
    return n_ranks // n_saes


def is_joinable(sae_class: type[TrainingSAE[Any]]) -> bool:
    """Whether a class is one of SAELens's, with or without penalties of ours."""
    backbone = next(cls for cls in sae_class.__mro__ if not issubclass(cls, PenalizedMixin))
    return backbone in KNOWN


def place(configs: Mapping[str, TrainingSAEConfig], n_groups: int) -> list[list[str]]:
    """Place SAEs on groups: the widest one first, where there are the fewest latents so far."""
    shares: list[list[str]] = [[] for _ in range(n_groups)]
    for sae_id in sorted(configs, key=lambda each: configs[each].d_sae, reverse=True):
        min(shares, key=lambda share: sum(configs[i].d_sae for i in share)).append(sae_id)
    return [sorted(share, key=list(configs).index) for share in shares]


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
    """While it lasts, a forward and a backward pass are those of the joined batch."""
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


class JoinedBatchTopK(BatchTopK):
    """SAELens's `BatchTopK`, which keeps k activations a sample of the joined batch."""

    def __init__(self, k: float, process_group: ProcessGroup) -> None:
        super().__init__(k)
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
