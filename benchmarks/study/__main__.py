"""`python -m benchmarks.study`: train what is missing, then the tables and figures."""

import os
from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path

from benchmarks.page import fill
from benchmarks.parallel import execute_all, read
from benchmarks.study.figures import over_frequency, over_lambda, trade_offs
from benchmarks.study.runs import SEEDS, STEPS, execute, key, runs_of
from benchmarks.study.tables import tables
from benchmarks.study.world import REGIMES

RESULTS = Path("benchmarks/results/study")
PAGE = Path("docs/four-worlds.md")
FIGURES = {"trade_offs": trade_offs, "lambda": over_lambda, "frequency": over_frequency}


def main() -> None:
    """Run the study; stopped and started again, it goes on."""
    parser = ArgumentParser(description="The paper's comparisons, where the truth is known.")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="one regime, two seeds, few steps")
    parser.add_argument("--draw-only", action="store_true", help="only draw what there is")
    arguments = parser.parse_args()
    regimes = list(REGIMES.values())[:1] if arguments.quick else list(REGIMES.values())
    seeds, steps = (2, STEPS // 20) if arguments.quick else (len(SEEDS), STEPS)
    wanted = [run for regime in regimes for run in runs_of(regime, seeds=seeds, steps=steps)]
    out = arguments.out or (RESULTS / "quick" if arguments.quick else RESULTS)
    path = out / "runs.jsonl"
    if not arguments.draw_only:
        done = {key(result) for result in read(path)}
        todo = [run for run in wanted if key(asdict(run)) not in done]
        todo.sort(key=lambda run: run.seed)  # every comparison soon has a first answer
        execute_all(todo, execute, path, processes=arguments.processes)
    keys = {key(asdict(run)) for run in wanted}
    results = [result for result in read(path) if key(result) in keys]
    if not results:
        parser.error(f"--draw-only needs results. Found none in {path}.")
    found = tables(results)
    text = "\n\n".join(f"## {name.capitalize()}\n\n{table}" for name, table in found.items())
    (out / "tables.md").write_text(text + "\n", encoding="utf-8")
    for name, draw in FIGURES.items():
        draw(results).savefig(out / f"{name}.png", dpi=110)
    print(found["claims"], found["verdicts"], sep="\n\n")
    if out == RESULTS and not arguments.quick:
        PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main()
