"""How training scales with processes: `python -m benchmarks.scaling [--steps 20]`.

`torchrun` starts 1 and 2 processes on a CPU, or 1 and as many as there are GPUs, which train
the first steps of the MiniLM release. Before each exchange they wait for each other, which is
timed apart: busy cores make them wait for longer, and hardly change the exchange's share.
"""

import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.measure import keep
from sae_lens_c2r._support.process import take_place
from sae_lens_c2r.reporting.tables import markdown_table

RELEASE = "minilm-layer-3"
WARM_UP = 4  # steps that are not timed


def train_and_time(steps: int, device: str, results: Path) -> None:
    """Train as one of the processes, and write down what its steps took."""
    from sae_lens_c2r.releases.files import find_release, read_release
    from sae_lens_c2r.training import distributed
    from sae_lens_c2r.training.plan import make_plan
    from sae_lens_c2r.training.train import train

    begun, waited, exchanged = (list[float]() for _ in range(3))  # of steps

    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def timed(exchange: Callable[..., Any]) -> Callable[..., Any]:
        def wait_and_exchange(*arguments: Any, **options: Any) -> Any:
            start = now()
            dist.barrier()
            together = now()
            result = exchange(*arguments, **options)
            waited[-1:] = [sum(waited[-1:]) + together - start]
            exchanged[-1:] = [sum(exchanged[-1:]) + now() - together]
            return result

        return wait_and_exchange

    def note_steps(_: str, trainer: Any) -> None:
        take_step = trainer.step

        def note_and_step(batch: Any) -> Any:
            if len(begun) == trainer.n_training_steps:  # the first SAE of this process
                begun.append(time.perf_counter())
                waited.append(0.0)
                exchanged.append(0.0)
            return take_step(batch)

        trainer.step = note_and_step

    path = find_release(RELEASE)
    batch = read_release(path).runner["train_batch_size_tokens"]
    changes = {"language_model.training_tokens": batch * steps, "runner.lr_decay_steps": 1}
    with distributed.init_distributed(), TemporaryDirectory() as folder:
        plan = make_plan(read_release(path, overrides=changes), device=device)
        out = Path(distributed.on_main_process(lambda: folder))
        if distributed.world_size() > 1:
            dist.all_reduce, dist.broadcast = timed(dist.all_reduce), timed(dist.broadcast)
        train(plan, out, checkpoint_minutes=0, watch=note_steps, log=lambda _: None)
        if distributed.is_main_process():
            seconds, timed_steps = begun[-1] - begun[WARM_UP], slice(WARM_UP, len(begun) - 1)
            row = {
                "processes": distributed.world_size(),
                "steps_per_second": len(begun[timed_steps]) / seconds,
                "waiting": sum(waited[timed_steps]) / seconds,
                "exchange": sum(exchanged[timed_steps]) / seconds,
            }
            results.write_text(json.dumps(row))
        distributed.all_gather(None)


def main() -> None:
    """Measure, and keep the table."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--results", type=Path, help="of a process that is measured")
    options = parser.parse_args()
    if options.results is not None:
        train_and_time(options.steps, options.device, options.results)
        return
    counts = {1, torch.cuda.device_count() if options.device == "cuda" else 2}
    rows, environment = [], {"OMP_NUM_THREADS": "1", **os.environ}
    for n in sorted(counts):
        with NamedTemporaryFile() as results:
            command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}"]
            command += ["-m", "benchmarks.scaling", f"--steps={options.steps}"]
            command += [f"--device={options.device}", f"--results={results.name}"]
            subprocess.run([sys.executable, *command], check=True, env=environment)
            rows.append(json.load(results))
    head = ["processes", "steps a second", "waiting for each other", "exchange"]
    cells = [
        [f"{row['processes']}", f"{row['steps_per_second']:.2f}"]
        + [f"{row[part]:.1%}" for part in ("waiting", "exchange")]
        for row in rows
    ]
    table = markdown_table(head, cells, text=())
    options.size = options.device
    keep(options, "scaling", rows, table)


if __name__ == "__main__":
    take_place()
    main()
