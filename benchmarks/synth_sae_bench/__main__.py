"""`python -m benchmarks.synth_sae_bench`: train what is missing, then tables and figures."""

import os
from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path

from benchmarks.parallel import execute_all, read
from benchmarks.synth_sae_bench.methods import runs_of
from benchmarks.synth_sae_bench.report import figure, tables
from benchmarks.synth_sae_bench.runs import execute, key
from benchmarks.synth_sae_bench.world import SIZES, Size, World

RESULTS = Path("benchmarks/results/synth_sae_bench")
SAMPLES = Path(".synth-sae-bench")  # gigabytes, made again where they are missing
SEEDS = 5
QUICK = Size("2k", (8,), 32_768, 65_536, evaluation=4_096)


def main() -> None:
    """Run the benchmark; stopped and started again, it goes on."""
    parser = ArgumentParser(description="Features that nobody here chose: SynthSAEBench.")
    parser.add_argument("--size", choices=SIZES, default="2k")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", nargs="*", metavar="METHOD", help="methods, all by default")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--samples", type=Path, default=SAMPLES)
    parser.add_argument("--training-samples", type=int, help="the size's own by default")
    parser.add_argument(
        "--quick", action="store_true", help="two seeds and hardly any training"
    )
    parser.add_argument("--draw-only", action="store_true", help="only draw what there is")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else SIZES[arguments.size]
    seeds = 2 if arguments.quick else arguments.seeds
    wanted = [
        run
        for run in runs_of(size, seeds=seeds, training_samples=arguments.training_samples)
        if not arguments.only or run.method in arguments.only
    ]
    path = arguments.out / f"{size.name}.jsonl"
    if not arguments.draw_only:
        done = {key(result) for result in read(path)}
        todo = [run for run in wanted if key(asdict(run)) not in done]
        World(size, arguments.samples).generate(arguments.processes)
        execute_all(
            [(run, size, arguments.samples, arguments.device) for run in todo],
            execute,
            path,
            processes=arguments.processes,
        )
    keys = {key(asdict(run)) for run in wanted}
    results = [result for result in read(path) if key(result) in keys]
    found = tables(size, results)
    text = "\n\n".join(f"## {name}\n\n{table}" for name, table in found.items())
    (arguments.out / f"{size.name}.md").write_text(text + "\n", encoding="utf-8")
    figure(size, results).savefig(arguments.out / f"{size.name}.png", dpi=110)
    print(text)


if __name__ == "__main__":
    main()
