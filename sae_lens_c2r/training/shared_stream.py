"""One stream of activations for all processes: each makes a part, all get all, in one order.

Batch i is made by rank i mod n. So that it does not matter how many there are, nothing of a
batch may depend on who makes it, and a stream that is continued starts a round of its own.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
from sae_lens.training.activations_store import ActivationsStore
from torch import Tensor
from tqdm.auto import tqdm

from sae_lens_c2r.training.norm_filter import within_norm
from sae_lens_c2r.training.random_state import random_state, restore_random
from sae_lens_c2r.training.ranks import Ranks

Batch = dict[str, Tensor]
FEATURES = "features"  # stands for a hook, where there is no model
FIRST_SEED = 1 << 31  # of the batches: no seed of somebody's weights
EVALUATION_SEED = FIRST_SEED - 1  # of samples that nothing is trained on


class SharedActivations(Iterator[Tensor]):
    """Activations of a language model at a store's first hook, as SAELens reads and filters.

    Args:
        store: The store, from which nothing has been read.
        ranks: The processes, of which each has such a store.
        rows_of_epoch: Rows of tokens to read before the first batch.
        norm_multiple: As of `within_norm`.
    """

    def __init__(
        self,
        store: ActivationsStore,
        ranks: Ranks,
        rows_of_epoch: int = 0,
        norm_multiple: float | None = None,
    ) -> None:
        self.rows_of_epoch = rows_of_epoch  # behind the batch that was given last
        self._store, self._ranks = store, ranks
        self._norm_multiple = norm_multiple
        self._n_read = 0
        self._rows = store._iterate_tokenized_sequences
        # SAELens calls this again at the end of an epoch.
        store._iterate_tokenized_sequences = self._counted_rows  # type: ignore[method-assign]
        store.iterable_sequences = self._counted_rows()
        unseen = not (rows_of_epoch and ranks.is_first)
        for _ in tqdm(range(rows_of_epoch), desc="Reading on", leave=False, disable=unseen):
            next(store.iterable_sequences)
        # SAELens's loop over batches, of tokens alone: it knows what to do where an epoch ends.
        store._get_filtered_multi_hook_llm_batch = self._tokens  # type: ignore[method-assign, assignment]
        self._token_batches: Iterator[Any] = store._iterate_filtered_multi_hook_activations()
        self._given = self._in_rounds()

    def _counted_rows(self) -> Generator[Tensor, None, None]:
        self._n_read = 0
        for row in self._rows():
            self._n_read += 1
            yield row

    def __next__(self) -> Tensor:
        return next(self._given)

    def _in_rounds(self) -> Iterator[Tensor]:
        tokens = self._token_batches
        while True:
            read = [(next(tokens), self._n_read) for _ in range(self._ranks.size)]
            own = self._encode(read[self._ranks.rank][0])
            for sender, (batch, n_read) in enumerate(read):
                acts = own
                if sender != self._ranks.rank:
                    acts = own.new_empty(int(self._kept(batch).sum()), own.shape[1])
                self._ranks.broadcast(acts, sender)
                self.rows_of_epoch = n_read
                # Here, where all processes have the same: only then do they know how many.
                yield within_norm(acts, self._norm_multiple)

    def _tokens(self, raise_on_epoch_end: bool = False) -> Tensor:
        return self._store.get_batch_tokens(raise_at_epoch_end=raise_on_epoch_end)

    @torch.no_grad()
    def _encode(self, tokens: Tensor) -> Tensor:
        acts = self._store.get_multi_hook_activations(tokens)[self._store.hook_name]
        acts = acts.to(self._store.device).reshape(-1, acts.shape[-1])
        if self._store.exclude_special_tokens is None:
            return acts.contiguous()
        return acts[self._kept(tokens)]

    def _kept(self, tokens: Tensor) -> Tensor:
        """Which of the tokens are not left out, for which no activation has to be known."""
        tokens = tokens[:, slice(*self._store.seqpos_slice)].reshape(-1).to(self._store.device)
        excluded = self._store.exclude_special_tokens
        if excluded is None:
            return torch.ones_like(tokens, dtype=torch.bool)
        return ~torch.isin(tokens, excluded)


class KnownFeatures(Iterator[Batch]):
    """Batches of known features, each of which has a seed of its own.

    Args:
        make: Makes a batch by torch's random state.
        ranks: The processes.
        device: Where batches are made.
        state: Where another such stream was, to continue there.
    """

    def __init__(
        self,
        make: Callable[[], Tensor],
        ranks: Ranks,
        device: str,
        state: dict[str, Any] | None = None,
    ) -> None:
        self._make, self._ranks, self._device = make, ranks, device
        self._n_given: int | None = state.get("n_batches") if state else 0
        if state and self._n_given is None:
            # Of a version that gave each SAE a stream by torch's random state alone.
            restore_random(state["random"])
            self._given: Iterator[Tensor] = (make() for _ in count())
        else:
            self._given = self._in_rounds()

    def __next__(self) -> Batch:
        return {FEATURES: next(self._given)}

    def state(self) -> dict[str, Any]:
        """Where the stream is."""
        return {"n_batches": self._n_given, "random": random_state()}

    def _in_rounds(self) -> Iterator[Tensor]:
        assert self._n_given is not None
        while True:
            with seeded(FIRST_SEED + self._n_given + self._ranks.rank, self._device):
                own = self._make().contiguous()
            for sender in range(self._ranks.size):
                batch = own if sender == self._ranks.rank else torch.empty_like(own)
                self._ranks.broadcast(batch, sender)
                self._n_given += 1
                yield batch


@contextmanager
def seeded(seed: int, device: str) -> Iterator[None]:
    """Set torch's random state by a seed, and put back after that what it was."""
    devices = [device] if torch.device(device).type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield
