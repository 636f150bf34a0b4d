"""Batches to train on: number i is a function of the settings and of i alone.

So it matters neither how many processes make them nor where a run was stopped. The model's
batch i is made by rank i modulo their number, and given to all.
"""

import random
import sys
import warnings
from collections import deque
from collections.abc import Generator, Iterator
from hashlib import sha256
from itertools import count, islice
from typing import Any

import torch
from sae_lens.training.activations_store import ActivationsStore
from torch import Tensor
from tqdm.auto import tqdm

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.models.reading import within_norm
from sae_lens_c2r.training.distributed import broadcast, rank, world_size

Batch = dict[str, Tensor]
Pass = tuple[int, str, Tensor]  # rows of the text before it, their hash, activations


class ActivationStream(Iterator[Batch]):
    """Shuffled activations of a language model at a store's first hook.

    They are read a buffer at a time, as large as SAELens's mixing buffer. A part of each, drawn
    at random, changes places with that of the buffer before it; then it is shuffled. So a batch
    depends on two buffers, and a stream that is continued reads those two again.
    """

    def __init__(
        self,
        store: ActivationsStore,  # from which nothing has been read
        *,
        seed: int,  # of the shuffles
        state: dict[str, Any] | None = None,  # of another stream of the same text, to continue
        n_batches: int = sys.maxsize,  # that will be taken; a buffer has no more
        norm_multiple: float | None = None,  # as of `within_norm`
    ) -> None:
        self._store, self._seed, self._norm_multiple = store, seed, norm_multiple
        buffer_size = store.n_batches_in_buffer * store.training_context_size
        of_store = buffer_size // store.train_batch_size_tokens
        state = state or {"n_batches": 0, "begins": (0, 0, None), "of_a_buffer": n_batches}
        self._n_batches = max(1, min(of_store, state["of_a_buffer"]))
        self._size = self._n_batches * store.train_batch_size_tokens
        self._n_lent = int(self._size * store.activations_mixing_fraction)
        self._row = 0  # of this epoch, behind those that were read
        self._rows_read = sha256()  # their content
        self._epochs = 0
        first = state["n_batches"] // self._n_batches
        # Of buffers: rows, tokens of the next batch, and a hash of the rows.
        self._begins = {first: state["begins"]}
        n_given = state["n_batches"] % self._n_batches
        self._batches = islice(self._shuffled(first), n_given, None)

    def __next__(self) -> Batch:
        return {self._store.hook_name: next(self._batches)}

    def state(self, n_batches: int) -> dict[str, Any]:
        """Where the stream was after so many batches, which may be fewer than it has given."""
        begins = self._begins[n_batches // self._n_batches]
        return {"n_batches": n_batches, "begins": begins, "of_a_buffer": self._n_batches}

    def _shuffled(self, first: int) -> Iterator[Tensor]:
        """The batches of all buffers after the first one, which lends a part to the next."""
        row, n_used, rows_read = self._begins[first]
        tokens = Tokens(self._passes(row, rows_read), n_used)
        lent = None
        for number in count(first):
            self._begins[number] = (tokens.row, tokens.n_used, tokens.rows_read)
            # Buffer 0 has no more than what it lends.
            buffer = tokens.take(self._size if number else self._n_lent)
            seed = random.Random(f"{self._seed} {number}").getrandbits(63)
            generator = torch.Generator().manual_seed(seed)
            places = torch.randperm(len(buffer), generator=generator)[: self._n_lent]
            before, lent = lent, buffer[places]
            if before is None:
                continue
            buffer[places] = before
            if self._n_lent:
                buffer = buffer[torch.randperm(len(buffer), generator=generator)]
            yield from buffer.split(self._store.train_batch_size_tokens)
            del buffer, before  # as large as all that is there besides

    def _passes(self, n_rows: int, rows_read: str | None) -> Iterator[Pass]:
        """Activations of one pass of the model after the other, with the rows before it."""
        self._store.iterable_sequences = self._rows(self._begin(n_rows, rows_read))
        epoch = 0  # that last gave a token
        while True:
            # Rows of tokens are cheap to read: every rank has all of them.
            read = [
                (self._row, self._rows_read.hexdigest(), self._store.get_batch_tokens())
                for _ in range(world_size())
            ]
            own = self._encode(read[rank()][2])
            for maker, (n_rows, rows_read, tokens) in enumerate(read):
                acts = own
                if maker != rank():
                    acts = own.new_empty(int(self._kept(tokens).sum()), own.shape[1])
                broadcast(acts, maker)
                epoch = self._epochs if len(acts) else epoch
                yield n_rows, rows_read, acts[within_norm(acts, self._norm_multiple)]
            if self._epochs > epoch + 1:  # a whole pass over the text gave none
                raise UserError(
                    "The text should have tokens to train on. All of them are left out by "
                    "`exclude_special_tokens` and `seqpos_slice`."
                )

    def _rows(self, rows: Iterator[Tensor]) -> Generator[Tensor, None, None]:
        """Rows of tokens, those of an epoch that has begun and of all epochs after it."""
        while True:
            yield from rows
            if self._row == 0:
                raise UserError(
                    "The text should fill at least one row of the model's context, "
                    f"{self._store.context_size:,} tokens. Found fewer."
                )
            warnings.warn("The whole text was read: a new epoch begins.", stacklevel=2)
            self._epochs += 1
            rows = self._begin()

    def _begin(self, n_skipped: int = 0, rows_read: str | None = None) -> Iterator[Tensor]:
        """Begin an epoch: the rows behind so many of the first, whose hash may be known."""
        self._row, self._rows_read = 0, sha256()
        rows = self._counted(self._store._iterate_tokenized_sequences())
        skipped = islice(rows, n_skipped)
        bar = tqdm(skipped, "Skipping rows", n_skipped, leave=False, disable=not n_skipped)
        deque(bar, maxlen=0)
        if rows_read not in (None, self._rows_read.hexdigest()):
            raise UserError(
                "The text should be the one that the training began with. Found other rows "
                f"among the first {n_skipped:,}."
            )
        return rows

    def _counted(self, rows: Iterator[Tensor]) -> Iterator[Tensor]:
        for row in rows:
            self._row += 1
            self._rows_read.update(row.cpu().numpy().tobytes())
            yield row

    @torch.no_grad()
    def _encode(self, tokens: Tensor) -> Tensor:
        acts = self._store.get_multi_hook_activations(tokens)[self._store.hook_name]
        if acts.shape[-1] != self._store.d_in:
            should = f"be {acts.shape[-1]:,}, the width of {self._store.hook_name}"
            raise UserError("sae.d_in", should, f"{self._store.d_in:,}")
        acts = acts.to(self._store.device).reshape(-1, acts.shape[-1])
        return acts[self._kept(tokens)]

    def _kept(self, tokens: Tensor) -> Tensor:
        """Which of the tokens are kept, which can be told without activations."""
        tokens = tokens[:, slice(*self._store.seqpos_slice)].reshape(-1).to(self._store.device)
        excluded = self._store.exclude_special_tokens
        if excluded is None:
            return torch.ones_like(tokens, dtype=torch.bool)
        return ~torch.isin(tokens, excluded)


class Tokens:
    """Activations of a text token by token, from behind some of a pass of the model."""

    def __init__(self, passes: Iterator[Pass], n_used: int) -> None:
        self._passes, self.n_used = passes, n_used
        self.row, self.rows_read, self._acts = next(passes)

    def take(self, n_tokens: int) -> Tensor:
        """The next activations."""
        parts = [self._acts[:0]]
        while n_tokens:
            if self.n_used >= len(self._acts):
                self.row, self.rows_read, self._acts = next(self._passes)
                self.n_used = 0
            parts.append(self._acts[self.n_used :][:n_tokens])
            self.n_used += len(parts[-1])
            n_tokens -= len(parts[-1])
        return torch.cat(parts)
