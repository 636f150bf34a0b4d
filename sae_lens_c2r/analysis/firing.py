"""On which tokens latents fire, and on how many any two of them do together."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from sae_lens_c2r._support.checks import check_feature_acts, message

_PAIRS_AT_ONCE = 2**20  # are sorted, 40 bytes each
_VALUES_AT_ONCE = 2**24  # are multiplied, 4 bytes each
_PRODUCTS_PER_PAIR = 1000  # take a processor as long as sorting one


@dataclass(frozen=True)
class Firing:
    """Every firing of a latent on a token, 8 bytes each, on the CPU.

    Args:
        n_tokens: Tokens.
        d_sae: Latents.
        tokens: The token of each firing, ascending.
        latents: Its latent, ascending on each token.
    """

    n_tokens: int
    d_sae: int
    tokens: Int[Tensor, " firings"]
    latents: Int[Tensor, " firings"]

    @classmethod
    def of(cls, batches: Iterable[Tensor]) -> "Firing":
        """The firing in batches of activations, which are looked at one after the other.

        Args:
            batches: Activations, shape ``[tokens, d_sae]``, dense or sparse COO. What is not
                0 fires.

        Returns:
            The firing.

        Raises:
            TypeError: If a batch is not a floating-point tensor.
            ValueError: If there is no batch, or one is not of that shape.
        """
        found, n_tokens, d_sae = [], 0, None
        for acts in batches:
            _check_batch(acts, d_sae)
            d_sae = acts.shape[1]
            found.append(_firings(acts, first_token=n_tokens))
            n_tokens += len(acts)
        if d_sae is None:
            raise ValueError(message("batches", "hold at least one batch", found))
        tokens, latents = torch.cat(found, dim=1)
        return cls(n_tokens, d_sae, tokens, latents)

    @cached_property
    def times_fired(self) -> Int[Tensor, " d_sae"]:
        """On how many tokens each latent fires."""
        return self.latents.bincount(minlength=self.d_sae)

    def together(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Pairs of latents, the lower one first, and on how many tokens both fire.

        Yields:
            Groups of pairs. Each pair that ever fires together is in one of them.
        """
        ends = self.tokens.bincount(minlength=self.n_tokens).cumsum(0)
        # How many firings of its token come after each.
        after = ends[self.tokens] - torch.arange(len(self.tokens)) - 1
        products = self.n_tokens * self.d_sae**2 // 2
        by_sorting = int(after.sum()) <= products // _PRODUCTS_PER_PAIR
        yield from self._by_sorting(after) if by_sorting else self._by_products()

    def _by_sorting(
        self, after: Int[Tensor, " firings"]
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Every two firings of a token: written down, sorted and counted, tile by tile."""
        pairs_of = torch.zeros(self.d_sae, dtype=torch.long).index_add_(0, self.latents, after)
        group = (pairs_of.cumsum(0) - pairs_of) // _PAIRS_AT_ONCE
        first = 0
        for n_latents in group.unique_consecutive(return_counts=True)[1].tolist():
            firings = self._firings_of(first, first + n_latents)
            times = after[firings]
            others = (firings + 1 - times.cumsum(0) + times).repeat_interleave(times)
            others += torch.arange(len(others))
            keys = (self.latents[firings].long() * self.d_sae).repeat_interleave(times)
            keys += self.latents[others]
            pairs, counts = map(torch.from_numpy, np.unique(keys.numpy(), return_counts=True))
            yield pairs // self.d_sae, pairs % self.d_sae, counts
            first += n_latents

    def _by_products(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Products of matrices, two tiles of latents at a time: faster where many fire."""
        size = max(1, _VALUES_AT_ONCE // self.n_tokens)
        for i in range(0, self.d_sae, size):
            left = self._dense(i, i + size)
            for j in range(i, self.d_sae, size):
                counts = left @ self._dense(j, j + size).T
                row, column = counts.triu(diagonal=i - j + 1).nonzero().T
                yield row + i, column + j, counts[row, column].long()

    def _dense(self, first: int, end: int) -> Float[Tensor, "latents tokens"]:
        """The firing of some latents on every token, 1 or 0."""
        firings = self._firings_of(first, end)
        fires = torch.zeros(min(end, self.d_sae) - first, self.n_tokens)
        fires[self.latents[firings].long() - first, self.tokens[firings].long()] = 1
        return fires

    def _firings_of(self, first: int, end: int) -> Int[Tensor, " some"]:
        """Which firings are of the latents from one to another."""
        ends = self.times_fired.cumsum(0)
        begin = int(ends[first - 1]) if first else 0
        return self._by_latent[begin : int(ends[min(end, self.d_sae) - 1])]

    @cached_property
    def _by_latent(self) -> Int[Tensor, " firings"]:
        """The firings in the order of their latents."""
        return self.latents.argsort(stable=True)


def _check_batch(acts: Tensor, d_sae: int | None) -> None:
    should = "hold tensors of shape [tokens, d_sae]"
    if not isinstance(acts, Tensor):
        raise TypeError(message("batches", should, acts, with_type=True))
    if acts.ndim != 2:
        raise ValueError(message("batches", should, tuple(acts.shape)))
    check_feature_acts(acts, d_sae=d_sae or acts.shape[1])


def _firings(acts: Tensor, *, first_token: int) -> Int[Tensor, "2 firings"]:
    """Token and latent of every firing, token by token."""
    if acts.is_sparse:
        acts = acts.detach().coalesce()
        found = acts.indices()[:, acts.values() != 0]
    else:
        found = acts.detach().nonzero().T
    tokens, latents = found.int().cpu()
    return torch.stack([tokens + first_token, latents])
