"""`python -m benchmarks WORLD`: train what is missing, then draw tables and figures."""

import os
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from pkgutil import iter_modules

import pandas as pd

from benchmarks import worlds
from benchmarks.experiment import PLAIN, ROWS_ONLY, train_all, world_module
from benchmarks.report import learning_rates_table, page_of
from benchmarks.rows import read

RESULTS = Path("benchmarks/results")
DATA = Path(".benchmarks")  # gigabytes of samples and SAEs, made again where they are missing


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a world's benchmark; stopped and started again, it goes on."""
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [module.name for module in iter_modules(worlds.__path__)]
    add = parser.add_argument
    add("world", choices=names, metavar="WORLD", help=", ".join(names))
    add("--size", help="a size of the world; its first one by default")
    add("--seeds", type=int, help="only so many seeds")
    add("--only", nargs="+", metavar="METHOD", help="only these methods")
    add("--jobs", type=int, default=os.cpu_count(), help="SAEs at a time")
    add("--device", default="cpu")
    add("--out", type=Path, help="where rows, tables and figures are kept")
    add("--data", type=Path, default=DATA, help="for samples and SAEs")
    add("--quick", action="store_true", help="hardly any training")
    add("--choose-lr", action="store_true", help="BatchTopK, by learning rate and decay")
    add("--draw-only", action="store_true", help="only draw what there is")
    options = parser.parse_args(arguments)
    world, results = world_module(options.world), RESULTS / options.world
    size = "quick" if options.quick else options.size or next(iter(world.SIZES))
    if size not in world.SIZES:
        parser.error(f"--size should be one of {list(world.SIZES)}. Found {size}.")
    choose = options.choose_lr
    if choose and not all(PLAIN in each.methods for each in world.SIZES[size]):
        parser.error(f"--choose-lr needs a world that trains {PLAIN}. Found {options.world}.")
    runs = [
        run
        for each in world.SIZES[size]
        for run in (each.runs_to_choose_lr() if choose else each.runs())
        if run.method not in ROWS_ONLY
        and (not options.only or run.method in options.only)
        and (choose or options.seeds is None or run.seed < options.seeds)
    ]
    out = options.out or (results / "quick" if options.quick else results)
    path = out / "runs.jsonl"
    if not options.draw_only:
        data, device = options.data, options.device
        train_all(runs, path, data=data, device=device, jobs=options.jobs)
    rows = pd.DataFrame(read(path))
    if not len(rows):
        parser.error(f"--only and --draw-only should leave something. Found none in {path}.")
    if choose:
        print(learning_rates_table(rows, {run.world for run in runs}))
        return
    drawn = world.draw(rows)
    for name, tables in drawn.tables.items():
        (out / f"{name}.md").write_text(page_of(tables), encoding="utf-8")
        print(page_of(tables))
    for name, figure in drawn.figures().items():
        figure.savefig(out / f"{name}.png", dpi=110)


if __name__ == "__main__":
    main()
