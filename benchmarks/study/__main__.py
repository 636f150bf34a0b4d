"""`python -m benchmarks.study`: train what is missing, then the tables and figures."""

import os
from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path

from benchmarks.parallel import execute_all, read
from benchmarks.study.report import over_lambda, tables, trade_offs
from benchmarks.study.runs import SEEDS, STEPS, execute, key, runs_of
from benchmarks.study.world import REGIMES

RESULTS = Path("benchmarks/results/study")


def main() -> None:
    """Run the study; stopped and started again, it goes on."""
    parser = ArgumentParser(description="The paper's comparisons, where the truth is known.")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="one regime, two seeds, few steps")
    parser.add_argument("--draw-only", action="store_true", help="only draw what there is")
    arguments = parser.parse_args()
    regimes = list(REGIMES.values())[:1] if arguments.quick else list(REGIMES.values())
    seeds, steps = (2, STEPS // 20) if arguments.quick else (len(SEEDS), STEPS)
    wanted = [run for regime in regimes for run in runs_of(regime, seeds=seeds, steps=steps)]
    path = arguments.out / "runs.jsonl"
    if not arguments.draw_only:
        done = {key(result) for result in read(path)}
        todo = [run for run in wanted if key(asdict(run)) not in done]
        todo.sort(key=lambda run: run.seed)  # every comparison soon has a first answer
        execute_all(todo, execute, path, processes=arguments.processes)
    keys = {key(asdict(run)) for run in wanted}
    results = [result for result in read(path) if key(result) in keys]
    text = tables(results)
    (arguments.out / "tables.md").write_text(text, encoding="utf-8")
    trade_offs(results).savefig(arguments.out / "trade_offs.png", dpi=110)
    over_lambda(results).savefig(arguments.out / "lambda.png", dpi=110)
    print(text)


if __name__ == "__main__":
    main()
