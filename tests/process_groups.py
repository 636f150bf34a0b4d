"""Processes of one group of torch's, on this machine."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.forkserver import LIMIT, call


def in_processes(n: int, work: Callable[..., Any], *arguments: Any, folder: Path) -> list[Any]:
    """Call a function in each of n processes of a group, and return its results."""
    processes = [call(_work, rank, n, folder, work, arguments) for rank in range(n)]
    assert [process.wait() for process in processes] == [0] * n
    return [torch.load(folder / f"{rank}.pt") for rank in range(n)]


def _work(
    rank: int, n: int, folder: Path, work: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), n)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=n, timeout=timedelta(seconds=LIMIT)
    )
    torch.save(work(rank, *arguments), folder / f"{rank}.pt")
    dist.barrier()  # one that leaves closes connections that others may still be making
    dist.destroy_process_group()
