"""`python -m benchmarks.transfer`: run what is missing, then draw."""

import os
from argparse import ArgumentParser
from pathlib import Path

from benchmarks.parallel import execute_all
from benchmarks.transfer.data import collect_minilm_activations
from benchmarks.transfer.report import figure, fitted_exponents, read_curves, table
from benchmarks.transfer.rules import LAMBDAS
from benchmarks.transfer.sweep import execute, hierarchy_runs, minilm_runs, missing

RESULTS = Path("benchmarks/results/transfer")


def main() -> None:
    """Run the sweep; stopped and started again, it goes on."""
    parser = ArgumentParser(description="The experiment behind lambda that transfers.")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--draw-only", action="store_true", help="only draw what there is")
    parser.add_argument(
        "--gate", choices=LAMBDAS, default="relu", help="relu, the paper's, by default"
    )
    arguments = parser.parse_args()
    runs, gate = RESULTS / "runs.jsonl", arguments.gate
    if not arguments.draw_only:
        collect_minilm_activations()
        wanted = sorted(hierarchy_runs(gate) + minilm_runs(gate), key=lambda run: run.seed)
        execute_all(missing(wanted, runs), execute, runs, processes=arguments.processes)
    curves = read_curves(runs, gate)
    if not curves:
        parser.error(f"--draw-only needs results of {gate}. Found none in {runs}.")
    text = f"{table(curves)}\n\n{fitted_exponents(curves)}"
    (RESULTS / f"{gate}.md").write_text(text + "\n", encoding="utf-8")
    figure(curves).savefig(RESULTS / f"{gate}.png", dpi=110)
    print(text)


if __name__ == "__main__":
    main()
