"""Nearest neighbours for the penalties of one SAE, searched no more often than asked for."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sae_lens_c2r.penalties import nearest_neighbors, step_generator
from sae_lens_c2r.penalties.cosines import pair_cosines


@dataclass(frozen=True)
class Search:
    """Which search a penalty asks for.

    Args:
        chunk_size: Latents among which a neighbour is searched; `None` for all.
        seed: Seed of the chunks; with the number of the step it determines them.
        interval: Training steps from one penalty to the next.
        penalties: Penalties that the neighbours serve. They are found for the first of them,
            or for the first that a resumed run comes to.
    """

    chunk_size: int | None
    seed: int
    interval: int
    penalties: int


@dataclass(frozen=True)
class Found:
    """Neighbours, the step from which on they serve, and how stale they are.

    `staleness` is what those before them had lost in cosine, in mean, when they were replaced.
    """

    neighbors: Tensor
    from_step: int
    staleness: Tensor | None


class NeighborSearch:
    """Searches of one SAE. Penalties of a step that ask for the same one share it."""

    def __init__(self) -> None:
        self._found: dict[Search, Found] = {}

    def begin_step(self) -> None:
        """Forget what served the last step only."""
        self._found = {
            search: found for search, found in self._found.items() if search.penalties > 1
        }

    @torch.no_grad()
    def find(self, search: Search, W_dec: Tensor, step: int) -> Found:
        """The neighbours that serve a step.

        Args:
            search: Which ones.
            W_dec: The decoder at that step.
            step: Number of the training step.

        Returns:
            Those found before, where they still serve, or new ones.
        """
        before = self._found.get(search)
        from_step = step - step % (search.interval * search.penalties)
        if before is not None and before.from_step == from_step:
            return before
        neighbors = nearest_neighbors(
            W_dec,
            chunk_size=search.chunk_size,
            generator=step_generator(search.seed, from_step),
            reduced_precision=True,
        )
        staleness = None
        if before is not None:
            lost = pair_cosines(W_dec, neighbors) - pair_cosines(W_dec, before.neighbors)
            staleness = lost.mean()
        self._found[search] = Found(neighbors, from_step, staleness)
        return self._found[search]
