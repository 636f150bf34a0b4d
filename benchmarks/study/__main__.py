"""`python -m benchmarks.study`: train what is missing, then the tables and figures."""

import os
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.page import refill
from benchmarks.parallel import execute_all, read
from benchmarks.statistics import Result
from benchmarks.study.figures import over_frequency, over_lambda, trade_offs
from benchmarks.study.lengths import lengths_table
from benchmarks.study.runs import SEEDS, STEPS, execute, key, longer_runs_of, runs_of
from benchmarks.study.tables import tables
from benchmarks.study.world import REGIMES

RESULTS = Path("benchmarks/results/study")
PAGE = Path("docs/four-worlds.md")
FIGURES = {"trade_offs": trade_offs, "lambda": over_lambda, "frequency": over_frequency}


def all_tables(results: Sequence[Result]) -> dict[str, str]:
    """Every table of the page, by its name."""
    return tables(shortest(results)) | {"lengths": lengths_table(results)}


def shortest(results: Sequence[Result]) -> list[Result]:
    """The results without those of SAEs that were trained for longer."""
    steps = min(each["steps"] for each in results)
    return [each for each in results if each["steps"] == steps]


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
    wanted = [
        run
        for of in (runs_of, longer_runs_of)
        for regime in regimes
        for run in of(regime, seeds=seeds, steps=steps)
    ]
    out = arguments.out or (RESULTS / "quick" if arguments.quick else RESULTS)
    path = out / "runs.jsonl"
    if not arguments.draw_only:
        done = {key(result) for result in read(path)}
        todo = [run for run in wanted if key(asdict(run)) not in done]
        # Every comparison soon has a first answer.
        todo.sort(key=lambda run: (run.steps, run.seed))
        execute_all(todo, execute, path, processes=arguments.processes)
    keys = {key(asdict(run)) for run in wanted}
    results = [result for result in read(path) if key(result) in keys]
    if not results:
        parser.error(f"--draw-only needs results. Found none in {path}.")
    found = all_tables(results)
    text = "\n\n".join(f"## {name.capitalize()}\n\n{table}" for name, table in found.items())
    (out / "tables.md").write_text(text + "\n", encoding="utf-8")
    for name, draw in FIGURES.items():
        draw(shortest(results)).savefig(out / f"{name}.png", dpi=110)
    print(found["claims"], found["verdicts"], sep="\n\n")
    if out == RESULTS and not arguments.quick:
        refill(PAGE, found)


if __name__ == "__main__":
    main()
