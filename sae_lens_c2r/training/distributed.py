"""The processes that train together, and what they tell each other.

`torchrun` starts them and gives each a rank. One process is the case of a single rank, to
which all of this applies: it sends nothing. Every rank has to make the same calls, in the same
order. Where a process ends, the others' next exchange fails, and `torchrun` names the process.
"""

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from sae_lens_c2r._support.errors import UserError, error_of, one_line
from sae_lens_c2r._support.files import begin_folder

T = TypeVar("T")
JOINING = timedelta(minutes=10)
TIMEOUT = timedelta(hours=1)  # of an exchange: rank 0 may read a checkpoint of 100 GB alone
PATIENCE = 10.0  # seconds until a file that another machine has written shows up


def rank() -> int:
    """Which of the processes this one is."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main_process() -> bool:
    """Whether this is rank 0, which alone prints, locks and decides."""
    return rank() == 0


def all_reduce_max(number: int) -> int:
    """The largest of the numbers that the ranks give."""
    if world_size() == 1:
        return number
    largest = torch.tensor(int(number))
    with _exchange():
        dist.all_reduce(largest, dist.ReduceOp.MAX)
    return int(largest)


def all_gather(value: T) -> list[T]:
    """The values that the ranks give, in their order."""
    if world_size() == 1:
        return [value]
    values: list[T] = [value] * world_size()
    with _exchange():
        dist.all_gather_object(values, value)
    return values


def broadcast(tensor: Tensor, sender: int = 0) -> None:
    """Take over, in place, the tensor of one rank; it has to be contiguous."""
    if world_size() > 1 and tensor.numel():
        with _exchange():
            # As bytes: not every backend knows every type.
            dist.broadcast(tensor.view(-1).view(torch.uint8), sender)


@contextmanager
def _exchange() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # the backends' own say which socket was closed
        raise OSError(
            f"Another process has ended, or does not answer. {one_line(error)}"
        ) from error


def on_all_ranks(part: Callable[[], T]) -> T:
    """Have every rank do its part; a UserError or an OSError in one is one in all."""
    result, error = None, None
    try:
        result = part()
    except (UserError, OSError) as raised:
        error = raised
    problems = all_gather(OSError(str(error)) if isinstance(error, OSError) else error)
    if error is not None and is_main_process():
        raise error
    for number, problem in enumerate(problems):
        if problem is not None:
            of_disk = isinstance(problem, OSError)
            if not is_main_process():  # rank 0 alone has it for the user
                raise OSError() if of_disk else UserError("")
            rank = f"Rank {number}"
            raise OSError(f"{rank}: {problem}") if of_disk else error_of(rank, problem)
    return result  # type: ignore[return-value]


def on_main_process(action: Callable[[], T]) -> T:
    """The result of an action of rank 0 alone, in every rank; errors as of `on_all_ranks`."""
    return all_gather(on_all_ranks(lambda: action() if is_main_process() else None))[0]  # type: ignore[return-value]


def check_shared_folder(folder: Path) -> None:
    """Raise a UserError unless all ranks see what rank 0 writes into a folder."""
    if world_size() == 1:
        return
    token = on_main_process(lambda: begin_folder(folder))
    deadline = time.monotonic() + PATIENCE
    while not token.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    found = all_gather(token.exists())

    def check() -> None:
        token.rmdir()
        if not all(found):
            blind = f"Rank {found.index(False)} does not find in {folder} what rank 0 has"
            should = "be a folder that all ranks share"
            raise UserError("out", should, more=f"{blind} written there.")

    on_main_process(check)


@contextmanager
def init_distributed() -> Iterator[None]:
    """Join the processes that `torchrun` has started, if it has started this one."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size == "1":
        yield
        return
    if os.environ.get("RANK") == "0" and not dist.is_torchelastic_launched():
        print(f"Waiting for the {size} processes of `WORLD_SIZE`.", file=sys.stderr)
    _join()
    try:
        yield
    except (UserError, OSError, KeyboardInterrupt) as error:
        if is_main_process() or str(error):  # or rank 0 prints it
            raise
        otherwise = 130 if isinstance(error, KeyboardInterrupt) else 1
        raise SystemExit(getattr(error, "status", otherwise)) from None
    dist.destroy_process_group()


def _join() -> None:
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    store, rank, size = next(rendezvous("env://", timeout=JOINING))
    store = PrefixStore(_name_of_this_time(store, rank, size), store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)


def _name_of_this_time(store: Store, rank: int, size: int) -> str:
    """A name that no earlier processes have used in the store, the same in all of these."""
    # `torchrun` may keep its store when it restarts what has ended: under the names that torch
    # uses there, some processes would find where those before them could be reached.
    own = uuid.uuid4().hex
    if rank > 0:
        store.set(f"sae-lens-c2r/here/{rank}", own)
        name = store.get(f"sae-lens-c2r/for/{own}").decode()
        store.set(f"{name}/heard/{rank}", "")
        return name
    unheard, deadline = set(range(1, size)), time.monotonic() + JOINING.total_seconds()
    while unheard:
        if time.monotonic() > deadline:
            raise RuntimeError(f"Rank {min(unheard)} has not joined.")
        for other in unheard:
            if store.check([f"sae-lens-c2r/here/{other}"]):  # one from before, perhaps
                there = store.get(f"sae-lens-c2r/here/{other}").decode()
                store.set(f"sae-lens-c2r/for/{there}", own)
        unheard = {other for other in unheard if not store.check([f"{own}/heard/{other}"])}
        time.sleep(0.01)
    return own
