"""How training scales with processes: `python -m benchmarks.scaling [--steps 20]`.

`torchrun`'s launcher starts 1 and 2 processes on a CPU, or 1 and as many as there are GPUs,
which train the first steps of the MiniLM release. Before each exchange they wait for each
other, which is timed apart: busy cores make them wait for longer, and hardly change the
exchange's share.
"""

import os
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.optim.optimizer import register_optimizer_step_post_hook

from benchmarks.measure import main
from sae_lens_c2r._support.process import take_place

RELEASE = "minilm-layer-3"
WARM_UP = 4  # steps that are not timed


def timed(
    exchange: Callable[..., Any], device: str, times: list[tuple[float, float, float]]
) -> Callable[..., Any]:
    """Return an exchange that notes when it began, how long it waited, and how long it took."""

    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def wait_and_exchange(*arguments: Any, **options: Any) -> Any:
        start = now()
        dist.barrier()
        together = now()
        result = exchange(*arguments, **options)
        times.append((start, together - start, now() - together))
        return result

    return wait_and_exchange


def train_and_time(steps: int, device: str, out: Path) -> dict[str, float]:
    """Train as one of the processes, and return what its steps took."""
    take_place()
    from sae_lens_c2r.releases.files import find_release, read_release
    from sae_lens_c2r.training import distributed
    from sae_lens_c2r.training.plan import make_plan
    from sae_lens_c2r.training.train import train

    ends: defaultdict[Any, list[float]] = defaultdict(list)  # of the steps of each optimizer
    exchanges: list[tuple[float, float, float]] = []
    register_optimizer_step_post_hook(lambda of, *_: ends[of].append(time.perf_counter()))
    path = find_release(RELEASE)
    batch = read_release(path).runner["train_batch_size_tokens"]
    changes = {"language_model.training_tokens": batch * steps, "runner.lr_decay_steps": 1}
    with distributed.init_distributed():
        n_processes = distributed.world_size()
        if n_processes > 1:
            dist.all_reduce = timed(dist.all_reduce, device, exchanges)
            dist.broadcast = timed(dist.broadcast, device, exchanges)
        plan = make_plan(read_release(path, overrides=changes), device=device)
        train(plan, out, checkpoint_minutes=0, log=lambda _: None)
    first, *_ = ends.values()  # the first SAE of this process
    start, end = first[WARM_UP - 1], first[-1]
    noted = [each for each in exchanges if start <= each[0] < end]
    return {
        "processes": n_processes,
        "steps_per_second": (len(first) - WARM_UP) / (end - start),
        "waiting": sum(waited for _, waited, _ in noted) / (end - start),
        "exchange": sum(exchanged for _, _, exchanged in noted) / (end - start),
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
