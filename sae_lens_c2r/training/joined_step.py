"""A training step of an SAE on its part of a batch, as part of the step on all of it.

Most of SAELens's losses are means over samples: with equal parts, the mean of the processes'
gradients is the gradient of the joined batch. What is not such a mean is exchanged.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

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
from sae_lens.saes.abstopk_sae import AbsTopKTrainingSAE
from sae_lens.saes.batchtopk_sae import BatchTopK
from torch import Tensor
from torch.distributed import ProcessGroup

from sae_lens_c2r.architectures.penalized import PenalizedMixin
from sae_lens_c2r.training.joined_topk import JoinedBatchTopK, smallest_positive

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


def is_joinable(sae_class: type[TrainingSAE[Any]]) -> bool:
    """Whether a class is one of SAELens's, with or without penalties of ours."""
    backbone = next(cls for cls in sae_class.__mro__ if not issubclass(cls, PenalizedMixin))
    return backbone in KNOWN


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
            stack.enter_context(_joined_threshold(sae, process_group))
        stack.enter_context(_averaged_gradients(sae, process_group))
        yield


@contextmanager
def _joined_threshold(sae: BatchTopKTrainingSAE, process_group: ProcessGroup) -> Iterator[None]:
    update = sae.update_topk_threshold

    def update_jointly(acts: Tensor) -> None:
        update(smallest_positive(acts, process_group))  # all that it looks at

    with patch.object(sae, "update_topk_threshold", update_jointly):
        yield


@contextmanager
def _averaged_gradients(sae: TrainingSAE[Any], process_group: ProcessGroup) -> Iterator[None]:
    """Average every gradient as soon as it is there: before SAELens clips them."""

    def average(parameter: Tensor) -> None:
        assert parameter.grad is not None
        total = parameter.grad.contiguous()
        dist.all_reduce(total, group=process_group)
        parameter.grad.copy_(total / dist.get_world_size(process_group))

    hooks = [each.register_post_accumulate_grad_hook(average) for each in sae.parameters()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
