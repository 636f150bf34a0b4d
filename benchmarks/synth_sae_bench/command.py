"""The command of a benchmark of methods: train what is missing, then draw it all."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.parallel import execute_all, read
from benchmarks.synth_sae_bench.curves import of_full_length
from benchmarks.synth_sae_bench.figure import figure
from benchmarks.synth_sae_bench.methods import Run, runs_of, runs_to_choose_lr
from benchmarks.synth_sae_bench.runs import World, execute, key, results_of
from benchmarks.synth_sae_bench.tables import learning_rates, tables
from benchmarks.synth_sae_bench.world import Size

SAMPLES = Path(".synth-sae-bench")  # gigabytes, made again where they are missing


def main(
    sizes: Mapping[str, Size],
    quick: Size,
    open_world: Callable[..., World],
    *,
    seeds: int,
    out: Path,
    description: str,
    show: Callable[[Size, Mapping[str, str]], None] | None = None,
) -> None:
    """Run the benchmark; stopped and started again, it goes on.

    Args:
        sizes: What there is to choose from; the first is the default.
        quick: The size that shows within minutes that it runs.
        open_world: The world of a size, a folder and a device.
        seeds: How many, if the command line does not say it.
        out: Where results are kept, if the command line does not say it; those of `--quick`
            in its folder `quick`.
        description: What `--help` says first.
        show: What puts the tables of results that are kept into pages.
    """
    parser = _parser(sizes, seeds=seeds, description=description)
    arguments = parser.parse_args()
    size = _size_of(arguments, sizes, quick, parser)
    seeds = 2 if arguments.quick else arguments.seeds
    folder = arguments.out or (out / "quick" if arguments.quick else out)
    world = partial(open_world, size, arguments.samples)
    if arguments.choose_lr:
        wanted = runs_to_choose_lr(size)
        path = folder / f"{size.name}-learning-rates.jsonl"
        print(learning_rates(_results(wanted, world, path, arguments)))
        return
    wanted = [
        run
        for run in runs_of(size, seeds=seeds)
        if not arguments.only or run.method in arguments.only
    ]
    if not wanted:
        methods = sorted({run.method for run in runs_of(size, seeds=1)})
        parser.error(f"--only should be some of {methods}. Found {arguments.only}.")
    results = _results(wanted, world, folder / f"{size.name}.jsonl", arguments)
    if not of_full_length(size, results):
        parser.error(f"--draw-only needs results. Found none in {folder}.")
    found = tables(size, results)
    text = "\n\n".join(f"## {name}\n\n{table}" for name, table in found.items())
    print(text)
    of_all = not (arguments.only or arguments.training_samples)
    if folder == out and not (of_all and seeds == parser.get_default("seeds")):
        return  # What is drawn there is of every SAE.
    (folder / f"{size.name}.md").write_text(text + "\n", encoding="utf-8")
    figure(size, results).savefig(folder / f"{size.name}.png", dpi=110)
    if show and folder == out:
        show(size, found)


def _parser(sizes: Mapping[str, Size], *, seeds: int, description: str) -> ArgumentParser:
    parser = ArgumentParser(description=description)
    parser.add_argument("--size", choices=sizes, default=next(iter(sizes)))
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--only", nargs="*", metavar="METHOD", help="methods, all by default")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--samples", type=Path, default=SAMPLES)
    parser.add_argument("--training-samples", type=int, help="the size's own by default")
    parser.add_argument(
        "--quick", action="store_true", help="two seeds and hardly any training"
    )
    parser.add_argument(
        "--choose-lr", action="store_true", help="only BatchTopK, by learning rate and decay"
    )
    parser.add_argument("--draw-only", action="store_true", help="only draw what there is")
    return parser


def _size_of(
    arguments: Namespace, sizes: Mapping[str, Size], quick: Size, parser: ArgumentParser
) -> Size:
    default = parser.get_default("size")
    if arguments.quick and arguments.size != default:
        parser.error(f"--quick is of {default}. Found --size {arguments.size}.")
    size = quick if arguments.quick else sizes[arguments.size]
    if not arguments.training_samples:
        return size
    if not arguments.out:
        parser.error(
            "--training-samples needs --out: what is kept is of the size's own number."
        )
    return replace(size, training_samples=arguments.training_samples, other_training_samples=())


def _results(
    wanted: list[Run],
    open_world: Callable[[str], World],
    path: Path,
    arguments: Namespace,
) -> list[dict[str, Any]]:
    """What there is of the runs that are wanted, after those that are missing were trained."""
    if not arguments.draw_only:
        done = {key(result) for result in read(path)}
        todo = [run for run in wanted if key(asdict(run)) not in done]
        open_world("cpu").generate(arguments.processes)
        execute_all(
            [(run, open_world, arguments.device) for run in todo],
            execute,
            path,
            processes=arguments.processes,
        )
    return results_of(wanted, path)
