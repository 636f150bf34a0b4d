"""Processes that train together, as `torchrun` would start them."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partialmethod
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from sae_lens_c2r.training import distributed
from tests.forkserver import Process, call

Before = tuple[Callable[..., None], tuple[Any, ...]]  # called in a process first


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _rank(
    rank: int,
    by_torchrun: Mapping[str, str],
    log: Path,
    before: Mapping[int, Before],
    arguments: list[str],
) -> None:
    os.environ.update(by_torchrun, RANK=str(rank), LOCAL_RANK=str(rank))
    # By itself it is an hour, which is longer than a test may take.
    distributed.TIMEOUT = timedelta(minutes=3)
    if rank > 0:  # `TQDM_DISABLE` works only where tqdm is yet to be imported
        tqdm.__init__ = partialmethod(tqdm.__init__, disable=True)
    sys.stdout = open(log.with_suffix(".out"), "a", buffering=1)  # noqa: SIM115
    sys.stderr = open(log.with_suffix(".err"), "a", buffering=1)  # noqa: SIM115
    command(before, arguments)


def command(before: Mapping[int, Before], arguments: list[str]) -> None:
    """The command `train`, after what is to come before it in this rank."""
    from sae_lens_c2r.cli import main

    action, its_arguments = before.get(int(os.environ["RANK"]), (None, ()))
    if action is not None:
        action(*its_arguments)
    main(["train", *arguments, "--device", "cpu"])


def start(
    size: int,
    release: str | Path,
    out: Path,
    *options: object,
    before: Mapping[int, Before] | None = None,
    minutes: float = 1e-9,
) -> list[Process]:
    """Processes that train a release, and continue what they find."""
    logs(out).mkdir(exist_ok=True)
    arguments = [str(release), "--out", str(out), "--resume"]
    arguments += ["--checkpoint-minutes", str(minutes), *map(str, options)]
    by_torchrun = {
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    return [
        call(_rank, rank, by_torchrun, logs(out) / f"rank-{rank}", before or {}, arguments)
        for rank in range(size)
    ]


def train(*arguments: Any, **options: Any) -> list[int]:
    """How the processes of `start` end."""
    return [process.wait() for process in start(*arguments, **options)]


def logs(out: Path) -> Path:
    """Where each process prints to."""
    return out.with_name(f"{out.name}-logs")


def told(out: Path) -> str:
    """All that a training has printed."""
    return "".join(path.read_text() for path in sorted(logs(out).iterdir()))


if __name__ == "__main__":  # by `torchrun`: is killed the first time, not after a restart
    from tests.training.killing import checkpoints, signal_after_naming

    if os.environ["RANK"] == "0" and not checkpoints(Path(sys.argv[1])):
        signal_after_naming(Path(sys.argv[1]), "step-*", 2, signal.SIGKILL)
    command({}, sys.argv[2:])
