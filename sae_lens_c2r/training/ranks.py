"""The processes that train together, and what they tell each other.

`torchrun` starts them and gives each a rank. One process is the case of a single rank, to
which all of this holds: it sends nothing.
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.training.heartbeat import Heartbeat, RankEndedError

T = TypeVar("T")
EXCHANGES = "torch.distributed.distributed_c10d"


class Ranks:
    """The processes of a training, seen from one of them.

    Every rank has to make the same calls, in the same order.

    Args:
        rank: Which of them this one is.
        size: How many there are.
        heartbeat: Knows which of them live; `None` where there is one.
    """

    def __init__(
        self, rank: int = 0, size: int = 1, heartbeat: Heartbeat | None = None
    ) -> None:
        self.rank = rank
        self.size = size
        self._heartbeat = heartbeat

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which alone prints, locks and decides."""
        return self.rank == 0

    def largest(self, number: int) -> int:
        """The largest of the numbers that the ranks give."""
        if self.size == 1:
            return number
        sent = torch.tensor(number)
        with self.naming_who_ended():
            dist.all_reduce(sent, dist.ReduceOp.MAX)
        return int(sent)

    def gather(self, value: T) -> list[T]:
        """The values that the ranks give, in their order."""
        if self.size == 1:
            return [value]
        values: list[T] = [value] * self.size
        with self.naming_who_ended():
            dist.all_gather_object(values, value)
        return values

    def broadcast(self, tensor: Tensor, sender: int = 0) -> None:
        """Take over, in place, the tensor that one rank has; it has to be contiguous."""
        if self.size == 1 or not tensor.numel():
            return
        with self.naming_who_ended():
            # As bytes: not every backend knows every type.
            dist.broadcast(tensor.view(-1).view(torch.uint8), sender)

    def each(self, part: Callable[[], T]) -> T:
        """Have every rank do its part, and wait for those that take longer.

        Args:
            part: This rank's.

        Returns:
            What this rank's part returned.

        Raises:
            UserError: In every rank, if one was raised in any.
            OSError: Likewise.
            RankEndedError: If a rank has ended.
        """
        result, error = None, None
        try:
            result = part()
        except RankEndedError:
            raise
        except (UserError, OSError) as raised:
            error = raised
        problems = self.gather(error and (isinstance(error, OSError), str(error)))
        if error is not None and self.is_first:
            raise error
        for rank, problem in enumerate(problems):
            if problem:
                of_disk, text = problem
                said = f"Rank {rank}: {text}" if rank else text
                raise OSError(said) if of_disk else UserError(said)
        return result  # type: ignore[return-value]

    def together(self, part: Callable[[], T]) -> list[T]:
        """What the parts of `each` returned, by rank."""
        return self.gather(self.each(part))

    def on_first(self, action: Callable[[], T]) -> T:
        """What rank 0 makes of an action that is its own to do.

        Args:
            action: What only rank 0 does.

        Returns:
            Its result, in every rank.
        """
        return self.together(lambda: action() if self.is_first else None)[0]  # type: ignore[return-value]

    @contextmanager
    def naming_who_ended(self) -> Iterator[None]:
        """Say of an exchange that fails which rank has ended.

        Raises:
            RankEndedError: In place of torch's error.
            RuntimeError: As it was raised, if not by an exchange.
        """
        try:
            yield
        except RuntimeError as error:  # the backends' own say which socket was closed
            if not _is_of_an_exchange(error):
                raise
            assert self._heartbeat is not None
            raise self._heartbeat.who_ended() from error


def _is_of_an_exchange(error: RuntimeError) -> bool:
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__") == EXCHANGES for frame in frames)


ALONE = Ranks()
