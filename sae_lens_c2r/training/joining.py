"""How the processes that `torchrun` starts find each other, and how they part."""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r.training.heartbeat import INTERRUPTED, Heartbeat, RankEndedError
from sae_lens_c2r.training.ranks import Ranks

TIMEOUT = timedelta(minutes=10)  # of joining, and of an exchange between GPUs
LONGEST = timedelta(hours=12)  # of what rank 0 does alone: it may read a checkpoint of 100 GB


@contextmanager
def joined_ranks() -> Iterator[Ranks]:
    """The processes that were started together: this one alone, or those of `torchrun`.

    An error ends all of them, and one of them lets it through, to be printed: that is rank 0,
    or the next one where rank 0 has ended and said nothing.

    Yields:
        The processes.

    Raises:
        UserError: If they do not find each other, or one of them has ended; or as it was.
        OSError: As it was raised.
        KeyboardInterrupt: Likewise.
        SystemExit: With the status of the error, where it is not for this process to print.
    """
    said = os.environ.get("WORLD_SIZE", "1")
    if said == "1":
        yield Ranks()
        return
    rank, size, heartbeat = _join(said)
    try:
        yield Ranks(rank, size, heartbeat)
    except (UserError, OSError, KeyboardInterrupt) as error:
        error = heartbeat.another_failed(error) or error
        if _leave(error, rank, heartbeat):
            raise error
        raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1) from None
    except BaseException as error:
        heartbeat.leave(one_line(error))
        raise
    heartbeat.leave()
    dist.destroy_process_group()


def _join(said: str) -> tuple[int, int, Heartbeat]:
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        rank, size = int(os.environ["RANK"]), int(said)
        store, *_ = next(rendezvous("env://", timeout=TIMEOUT))
        name = _name_of_this_time(store, rank, size)
        dist.init_process_group(
            backend,
            store=PrefixStore(name, store),
            rank=rank,
            world_size=size,
            timeout=TIMEOUT,
        )
        # Who ends or hangs meanwhile is found by the heartbeat.
        group: Any = dist.group.WORLD
        group._get_backend(torch.device("cpu"))._set_default_timeout(LONGEST)
        return rank, size, Heartbeat(rank, size, name)
    except (KeyError, ValueError, RuntimeError) as error:
        raise UserError(
            f"The {said} processes of `WORLD_SIZE` should find each other, as those of "
            f"`torchrun` do. {one_line(error)}"
        ) from None


def _name_of_this_time(store: Store, rank: int, size: int) -> str:
    """A name that no earlier processes have used in the store.

    `torchrun` may keep its store when it restarts what has ended: under the names that torch
    uses there, some processes would find where those before them could be reached.

    Returns:
        The name, the same in all processes.

    Raises:
        RuntimeError: If they have not all come in time.
    """
    own = uuid.uuid4().hex
    if rank > 0:
        store.set(f"sae-lens-c2r/here/{rank}", own)
        name = store.get(f"sae-lens-c2r/for/{own}").decode()
        store.set(f"{name}/heard/{rank}", "")
        return name
    unheard, deadline = set(range(1, size)), time.monotonic() + TIMEOUT.total_seconds()
    while unheard:
        if time.monotonic() > deadline:
            raise RuntimeError(f"Rank {min(unheard)} has not come.")
        for other in unheard:
            if store.check([f"sae-lens-c2r/here/{other}"]):  # one from before, perhaps
                there = store.get(f"sae-lens-c2r/here/{other}").decode()
                store.set(f"sae-lens-c2r/for/{there}", own)
        unheard = {other for other in unheard if not store.check([f"{own}/heard/{other}"])}
        time.sleep(0.01)
    return own


def _leave(error: BaseException, rank: int, heartbeat: Heartbeat) -> bool:
    """End with an error.

    Returns:
        Whether it is for this process to print.
    """
    if not isinstance(error, RankEndedError):
        interrupted = isinstance(error, KeyboardInterrupt)
        heartbeat.leave(INTERRUPTED if interrupted else one_line(error))
        return rank == 0
    heartbeat.leave()
    first_living = min(set(range(rank + 1)) - set(error.ended))
    return rank == first_living and not (error.told and 0 in error.ended)
