"""SAELens's trainer of one SAE in several processes, each of which takes a part of a batch."""

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from sae_lens import TrainingSAE
from sae_lens.saes.sae import TrainStepOutput
from sae_lens.training.sae_trainer import SAETrainer
from torch import Tensor
from torch.distributed import ProcessGroup

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.penalties.processes import gather_parts
from sae_lens_c2r.training.joined_step import joined_step


def split_batches(trainer: SAETrainer[Any, Any], process_group: ProcessGroup) -> None:
    """Have a trainer take its part of every batch, and train as on all of it.

    Every process of the group has such a trainer, with the same weights, and is given the
    same batches, whole: what SAELens estimates of them and counts of their samples is that of
    one process. So are the latents' counters after a step, and what is logged of it.

    Args:
        trainer: SAELens's trainer, which is changed.
        process_group: The processes.

    Raises:
        UserError: If the batches have no equal parts.
    """
    size = trainer.cfg.train_batch_size_samples
    check_parts(size, dist.get_world_size(process_group))
    take_step, build_log = trainer._train_step, trainer.build_train_step_log_dict

    def take_joined_step(sae: TrainingSAE[Any], sae_in: Tensor) -> TrainStepOutput:
        n_parts = dist.get_world_size(process_group)
        check_parts(len(sae_in), n_parts)
        part = sae_in.chunk(n_parts)[dist.get_rank(process_group)]
        before = trainer.act_freq_scores
        trainer.act_freq_scores = torch.zeros_like(before)
        with joined_step(sae, process_group):
            output = take_step(sae=sae, sae_in=part)
        _join_counters(trainer, before, process_group)
        return output

    def build_joined_log(output: TrainStepOutput, n_training_samples: int) -> dict[str, Any]:
        whole = replace(
            output,
            sae_in=gather_parts(output.sae_in, process_group),
            sae_out=gather_parts(output.sae_out, process_group),
        )
        log = build_log(output=whole, n_training_samples=n_training_samples)
        return _averaged(log, process_group, output.sae_in.device)

    trainer._train_step = take_joined_step  # type: ignore[method-assign]
    trainer.build_train_step_log_dict = build_joined_log  # type: ignore[method-assign]


def check_parts(batch_size: int, n_parts: int) -> None:
    """Raise unless a batch has that many equal parts.

    Args:
        batch_size: Samples of the batch.
        n_parts: Processes that it is split over.

    Raises:
        UserError: If it has not: a mean over samples would not be the mean of the parts'.
    """
    if batch_size % n_parts:
        raise UserError(
            f"A batch should have a multiple of {n_parts} samples, where {n_parts} processes "
            f"share it. Found {batch_size:,}."
        )


def _join_counters(
    trainer: SAETrainer[Any, Any], before: Tensor, process_group: ProcessGroup
) -> None:
    """Add what fired in all parts in this step to what had fired before."""
    fired = trainer.act_freq_scores
    dist.all_reduce(fired, group=process_group)
    trainer.act_freq_scores = before + fired
    trainer.n_forward_passes_since_fired[fired > 0] = 0


def _averaged(
    log: dict[str, Any], process_group: ProcessGroup, device: torch.device
) -> dict[str, Any]:
    """A step's log with the means over the processes; what they all have alike stays."""
    names = sorted(name for name in log if name.startswith(("losses/", "metrics/")))
    values = torch.tensor([log[name] for name in names], dtype=torch.float64, device=device)
    dist.all_reduce(values, group=process_group)
    means = values / dist.get_world_size(process_group)
    return {**log, **dict(zip(names, means.tolist(), strict=True))}
