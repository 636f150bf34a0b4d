"""Nearest neighbours for the penalties of one SAE, searched no more often than asked for."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

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


@dataclass
class Found:
    """Neighbours, the first and the last step that they served, and how stale they get.

    `staleness` is what those before them had lost in cosine, in mean, when they were replaced.
    """

    neighbors: Tensor
    from_step: int
    last_step: int
    staleness: Tensor | None


class NeighborSearch:
    """Searches of one SAE. Penalties of a step that ask for the same one share it."""

    def __init__(self) -> None:
        self._found: dict[Search, Found] = {}

    def forget(self) -> None:
        """Forget everything: the decoder is another."""
        self._found = {}

    def begin_step(self) -> None:
        """Forget what served the last step only."""
        self._found = {
            search: found for search, found in self._found.items() if search.penalties > 1
        }

    def state(self) -> list[dict[str, Any]]:
        """What later steps may be served from, for `restore` to put back."""
        return [
            {"search": asdict(search), "found": vars(found).copy()}
            for search, found in self._found.items()
            if search.penalties > 1
        ]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Put back what had been found: a resumed run then finds what it would have.

        Args:
            state: What `state` returned for the same decoder, on any device.
        """
        self._found = {Search(**each["search"]): Found(**each["found"]) for each in state}

    @torch.no_grad()
    def find(
        self,
        search: Search,
        W_dec: Tensor,
        step: int,
        process_group: ProcessGroup | None = None,
    ) -> Found:
        """The neighbours that serve a step.

        Args:
            search: Which ones.
            W_dec: The decoder at that step.
            step: Number of the training step.
            process_group: Processes that share the search.

        Returns:
            Those found before, where they still serve, or new ones.
        """
        before = self._found.get(search)
        from_step = step - step % (search.interval * search.penalties)
        # Of another run, or from before a move to another device: of no use.
        if before is not None and (
            step < before.last_step or before.neighbors.device != W_dec.device
        ):
            before = None
        if before is None or before.from_step != from_step:
            self._found[search] = self._search(search, W_dec, from_step, before, process_group)
        found = self._found[search]
        found.last_step = step
        return found

    def _search(
        self,
        search: Search,
        W_dec: Tensor,
        from_step: int,
        before: Found | None,
        process_group: ProcessGroup | None,
    ) -> Found:
        neighbors = nearest_neighbors(
            W_dec,
            chunk_size=search.chunk_size,
            generator=step_generator(search.seed, from_step),
            reduced_precision=True,
            process_group=process_group,
        )
        staleness = None
        if before is not None:
            lost = pair_cosines(W_dec, neighbors) - pair_cosines(W_dec, before.neighbors)
            staleness = lost.mean()
        return Found(neighbors, from_step, from_step, staleness)
