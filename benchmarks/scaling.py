"""How training scales with processes: `python -m benchmarks.scaling [--steps 20]`.

`torchrun`'s launcher starts 1 and 2 processes on a CPU, or 1 and as many as there are GPUs,
which train the first steps of the MiniLM release. Before each exchange they wait for each
other, which is timed apart: busy cores make them wait for longer, and hardly change the
exchange's share.
"""

import os
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from benchmarks.measure import main
from sae_lens_c2r._support.process import take_place

RELEASE = "minilm-layer-3"
WARM_UP = 4  # steps that are not timed


def timed(
    exchange: Callable[..., Any], device: str, times: list[tuple[float, float, float]]
) -> Callable[..., Any]:
    """Return an exchange that notes when it began, when all were there, and when it ended."""

    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def wait_and_exchange(*arguments: Any, **options: Any) -> Any:
        start = now()
        dist.barrier()
        together = now()
        result = exchange(*arguments, **options)
        times.append((start, together, now()))
        return result

    return wait_and_exchange


def train_and_time(steps: int, device: str, out: Path) -> dict[str, float]:
    """Train as one of the processes, and return what its steps took."""
    take_place()
    from sae_lens_c2r.releases.files import find_release, read_release
    from sae_lens_c2r.training import distributed
    from sae_lens_c2r.training.plan import make_plan
    from sae_lens_c2r.training.train import train

    begun: list[float] = []  # of steps
    exchanges: list[tuple[float, float, float]] = []

    def note_steps(_: str, trainer: Any) -> None:
        take_step = trainer.step

        def note_and_step(batch: Any) -> Any:
            if len(begun) == trainer.n_training_steps:  # the first SAE of this process
                begun.append(time.perf_counter())
            return take_step(batch)

        trainer.step = note_and_step

    path = find_release(RELEASE)
    batch = read_release(path).runner["train_batch_size_tokens"]
    changes = {"language_model.training_tokens": batch * steps, "runner.lr_decay_steps": 1}
    with distributed.init_distributed():
        n_processes = distributed.world_size()
        if n_processes > 1:
            dist.all_reduce = timed(dist.all_reduce, device, exchanges)
            dist.broadcast = timed(dist.broadcast, device, exchanges)
        plan = make_plan(read_release(path, overrides=changes), device=device)
        train(plan, out, checkpoint_minutes=0, watch=note_steps, log=lambda _: None)
    start, end = begun[WARM_UP], begun[-1]
    waits = [
        (together - at, to - together) for at, together, to in exchanges if start <= at < end
    ]
    return {
        "processes": n_processes,
        "steps_per_second": (len(begun) - 1 - WARM_UP) / (end - start),
        "waiting": sum(waited for waited, _ in waits) / (end - start),
        "exchange": sum(exchanged for _, exchanged in waits) / (end - start),
    }


def measure(options: Namespace) -> list[dict[str, float]]:
    """Return the rows of all numbers of processes."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes
    steps = WARM_UP + 2 if options.quick else options.steps
    counts, rows = {1, torch.cuda.device_count() if options.device == "cuda" else 2}, []
    local = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "max_restarts": 0}
    for n in sorted(counts):
        launch = LaunchConfig(1, 1, n, run_id=f"scaling-{n}", **local)  # type: ignore[arg-type]
        with TemporaryDirectory() as out:
            found = elastic_launch(launch, train_and_time)(steps, options.device, Path(out))
        rows.append(found[0])
    return rows


if __name__ == "__main__":
    main("scaling", __doc__, measure, steps=20)
