"""How training scales with processes: `python -m benchmarks.scaling [--steps 20]`.

`torchrun` starts 1 and 2 processes on a CPU, or 1 and as many as there are GPUs, which train
the first steps of the MiniLM release. Before each exchange they wait for each other; that is
timed apart from the exchange itself, which is what several processes add. Cores that are busy
otherwise make them wait for longer, and hardly change the exchange's share of the step.
"""

import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.measure import synchronize, write_results
from sae_lens_c2r._support.process import take_place

RESULTS = Path("benchmarks/results")
RELEASE, PAPERS = "minilm-layer-3", "gemma-2-2b-layer-12"
MODEL_MS, SAE_MS = 83.0, 27.0  # on paper, of a step of the paper's release on an H100
WARM_UP = 4  # steps that are not timed


def train_and_time(steps: int, device: str, results: Path) -> None:
    """What one of the processes does: train, and write down what its steps took."""
    from sae_lens_c2r.releases.files import find_release, read_release
    from sae_lens_c2r.training.distributed import (
        all_gather,
        init_distributed,
        is_main_process,
        on_main_process,
        world_size,
    )
    from sae_lens_c2r.training.plan import make_plan
    from sae_lens_c2r.training.train import train

    begun: list[float] = []  # of steps
    waited: list[float] = []
    exchanged: list[float] = []

    def timed(exchange: Callable[..., Any]) -> Callable[..., Any]:
        def wait_and_exchange(*arguments: Any, **options: Any) -> Any:
            synchronize(device)
            start = time.perf_counter()
            dist.barrier()
            together = time.perf_counter()
            result = exchange(*arguments, **options)
            synchronize(device)
            waited[-1:] = [sum(waited[-1:]) + together - start]
            exchanged[-1:] = [sum(exchanged[-1:]) + time.perf_counter() - together]
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

    release = read_release(find_release(RELEASE))
    batch = release.runner["train_batch_size_tokens"]
    changes = {"language_model.training_tokens": batch * steps, "runner.lr_decay_steps": 1}
    with init_distributed(), TemporaryDirectory() as folder:
        plan = make_plan(read_release(find_release(RELEASE), overrides=changes), device=device)
        out = Path(on_main_process(lambda: folder))
        if world_size() > 1:
            dist.all_reduce, dist.broadcast = timed(dist.all_reduce), timed(dist.broadcast)
        train(plan, out, checkpoint_minutes=0, watch=note_steps, log=lambda _: None)
        if is_main_process():
            seconds = begun[-1] - begun[WARM_UP]
            row = {
                "processes": world_size(),
                "steps_per_second": (len(begun) - 1 - WARM_UP) / seconds,
                "waiting": sum(waited[WARM_UP : len(begun) - 1]) / seconds,
                "exchange": sum(exchanged[WARM_UP : len(begun) - 1]) / seconds,
            }
            results.write_text(json.dumps(row))
        all_gather(None)


def measure(processes: int, arguments: Namespace, folder: Path) -> dict[str, Any]:
    """Have `torchrun` train, and read what it took."""
    results = folder / f"{processes}.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={processes}", "-m", "benchmarks.scaling"]
    command += [f"--steps={arguments.steps}", f"--device={arguments.device}"]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    subprocess.run([*command, f"--results={results}"], check=True, env=environment)
    row: dict[str, Any] = json.loads(results.read_text())
    return row


def estimate(processes: int) -> float:
    """How many times as fast the paper's release is on that many GPUs, on paper."""
    from sae_lens_c2r.releases.files import find_release, read_release
    from sae_lens_c2r.training.data_parallel import place
    from sae_lens_c2r.training.plan import make_plan

    plan = make_plan(read_release(find_release(PAPERS)), device="cpu")

    def step(n: int) -> float:
        return MODEL_MS / n + SAE_MS * max(map(len, place(plan.saes, n)))

    return step(1) / step(processes)


def table(rows: list[dict[str, Any]]) -> str:
    """The figures in Markdown."""
    lines = [
        "| processes | steps a second | waiting for each other | exchange |",
        "|--:|--:|--:|--:|",
    ]
    for row in rows:
        shares = f"{row['waiting']:.1%} | {row['exchange']:.1%}"
        lines.append(f"| {row['processes']} | {row['steps_per_second']:.2f} | {shares} |")
    lines += ["", f"On paper, {PAPERS} is {estimate(8):.1f} times as fast on 8 GPUs as on one."]
    return "\n".join(lines)


def main() -> None:
    """Measure, and keep the table."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--results", type=Path, help="of a process that is measured")
    arguments = parser.parse_args()
    if arguments.results is not None:
        train_and_time(arguments.steps, arguments.device, arguments.results)
        return
    counts = [1, torch.cuda.device_count() if arguments.device == "cuda" else 2]
    with TemporaryDirectory() as folder:
        rows = [measure(n, arguments, Path(folder)) for n in sorted(set(counts))]
    name = f"scaling-{arguments.device}"
    command = f"python -m benchmarks.scaling --steps {arguments.steps}"
    write_results(arguments.out, name, command, arguments.device, rows, table(rows))


if __name__ == "__main__":
    take_place()
    main()
