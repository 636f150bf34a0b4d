"""Activations of a language model, in SAELens's order, from a stream that can be continued.

SAELens keeps its mixing buffer in the local variables of a generator, and of its position in
the text the number of rows that it has read, which is not enough where a row of text makes
several of tokens. Here is the same stream with its state in the open.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from sae_lens.training.activations_store import ActivationsStore
from sae_lens.training.prefetch import PrefetchingIterator
from torch import Tensor

from sae_lens_c2r.training.random_state import random_state, restore_random
from sae_lens_c2r.training.ranks import ALONE, Ranks
from sae_lens_c2r.training.shared_stream import Batch, SharedActivations


class MixingBuffer(Iterator[Tensor]):
    """SAELens's `mixing_buffer`, batch by batch, with the buffer as an attribute.

    Args:
        activations: What is mixed, without end: tensors of shape ``[tokens, d_in]``.
        buffer_size: Tokens in the buffer when it is shuffled.
        batch_size: Tokens in a batch.
        mix_fraction: Part of the buffer that is kept for the next shuffle; 0 shuffles nothing.
        ranks: The processes that have such a buffer; rank 0 shuffles.
    """

    def __init__(
        self,
        activations: Iterator[Tensor],
        *,
        buffer_size: int,
        batch_size: int,
        mix_fraction: float,
        ranks: Ranks = ALONE,
    ) -> None:
        self.kept: Tensor | None = None
        self.served: Tensor | None = None
        self._activations = activations
        self._buffer_size = buffer_size
        self._batch_size = batch_size
        self._mix_fraction = mix_fraction
        self._ranks = ranks

    @torch.no_grad()
    def __next__(self) -> Tensor:
        while self.served is None or len(self.served) == 0:
            new = next(self._activations)
            self.kept = new if self.kept is None else torch.cat([self.kept, new])
            if len(self.kept) >= self._buffer_size:
                self._mix(self.kept)
        batch, self.served = self.served.tensor_split([self._batch_size])
        return batch

    def _mix(self, buffer: Tensor) -> None:
        if self._mix_fraction > 0:
            order = torch.randperm(len(buffer))
            self._ranks.broadcast(order)  # whatever else has drawn random numbers here
            buffer = buffer[order]
        n_served = len(buffer) - int(self._buffer_size * self._mix_fraction)
        n_batches = max(1, n_served // self._batch_size)
        self.served, self.kept = buffer.tensor_split([n_batches * self._batch_size])


class ActivationStream(Iterator[Batch]):
    """The stream of one of SAELens's activation stores, at its first hook.

    Args:
        store: The store, from which nothing has been read.
        prefetch: Batches that a thread makes ahead of those that are asked for.
        state: Where another stream of the same text was, to continue there. Its rows of
            tokens are read again, and not encoded again.
        ranks: The processes that share it. Where there are several, none makes batches
            ahead: its thread and the training would talk to the others at once.
        norm_multiple: As of `within_norm`.
    """

    def __init__(
        self,
        store: ActivationsStore,
        *,
        prefetch: int = 0,
        state: dict[str, Any] | None,
        ranks: Ranks = ALONE,
        norm_multiple: float | None = None,
    ) -> None:
        self._hook_name = store.hook_name
        self._activations = SharedActivations(
            store, ranks, state["rows_of_epoch"] if state else 0, norm_multiple
        )
        self._buffer = MixingBuffer(
            self._activations,
            buffer_size=store.n_batches_in_buffer * store.training_context_size,
            batch_size=store.train_batch_size_tokens,
            mix_fraction=store.activations_mixing_fraction,
            ranks=ranks,
        )
        self._ahead: deque[Tensor] = deque()  # made by the other stream, and not taken yet
        if state is not None:
            self._buffer.kept = state["kept"].to(store.device)
            self._buffer.served = state["served"].to(store.device)
            self._ahead.extend(batch.to(store.device) for batch in state["ahead"])
            restore_random(state["random"])
        self._n_made = 0
        prefetch = prefetch if ranks.size == 1 else 0
        self._latest: deque[Tensor] = deque(maxlen=prefetch + 1)  # all that may lie ahead
        self._prefetched = _CountedPrefetch(self, prefetch) if prefetch else None

    @property
    def batches(self) -> Iterator[Batch]:
        """What a trainer is given: this stream, or the thread that reads it ahead."""
        return self._prefetched or self

    def __next__(self) -> Batch:
        batch = self._ahead.popleft() if self._ahead else next(self._buffer)
        self._n_made += 1
        self._latest.append(batch)
        return {self._hook_name: batch}

    def state(self) -> dict[str, Any]:
        """Where the stream is, with torch's random state, which orders what is to come.

        Returns:
            Tensors and numbers. Those of the buffer are views of one tensor, which
            `torch.save` writes once.
        """
        with self._prefetched.paused() if self._prefetched else nullcontext():
            n_taken = self._prefetched.n_taken if self._prefetched else self._n_made
            latest = list(self._latest)
            not_taken = latest[len(latest) - (self._n_made - n_taken) :]
            return {
                "rows_of_epoch": self._activations.rows_of_epoch,
                "kept": self._buffer.kept,
                "served": self._buffer.served,
                "ahead": [batch.clone() for batch in [*not_taken, *self._ahead]],
                "random": random_state(),
            }


class _CountedPrefetch(PrefetchingIterator[Batch]):
    """SAELens's prefetching iterator, which knows how many batches were taken of it."""

    def __init__(self, source: Iterator[Batch], prefetch: int) -> None:
        self.n_taken = 0
        super().__init__(source, prefetch=prefetch)

    def __next__(self) -> Batch:
        batch = super().__next__()
        self.n_taken += 1
        return batch
