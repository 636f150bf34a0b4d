"""`python -m benchmarks.transfer`: run what is missing, then draw."""

import os
from argparse import ArgumentParser
from pathlib import Path

from benchmarks.page import refill
from benchmarks.parallel import execute_all
from benchmarks.transfer.data import collect_minilm_activations
from benchmarks.transfer.report import figure, fitted_exponents, read_curves, table
from benchmarks.transfer.rules import LAMBDAS
from benchmarks.transfer.sweep import execute, hierarchy_runs, minilm_runs, missing

RESULTS = Path("benchmarks/results/transfer")
RUNS = RESULTS / "runs.jsonl"
PAGE = Path("docs/how-lambda-transfers.md")


def main() -> None:
    """Run the sweep of a gate; stopped and started again, it goes on. Draw all gates."""
    parser = ArgumentParser(description="The experiment behind lambda that transfers.")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--draw-only", action="store_true", help="only draw what there is")
    parser.add_argument(
        "--gate", choices=LAMBDAS, default="relu", help="relu, the paper's, by default"
    )
    arguments = parser.parse_args()
    if not arguments.draw_only:
        collect_minilm_activations()
        gate = arguments.gate
        wanted = sorted(hierarchy_runs(gate) + minilm_runs(gate), key=lambda run: run.seed)
        execute_all(missing(wanted, RUNS), execute, RUNS, processes=arguments.processes)
    found = tables()
    refill(PAGE, found)
    for gate in LAMBDAS:
        if curves := read_curves(RUNS, gate):
            figure(curves).savefig(RESULTS / f"{gate}.png", dpi=110)
    print("\n\n".join(f"## {gate}\n\n{text}" for gate, text in found.items()))


def tables() -> dict[str, str]:
    """The tables of every gate, in Markdown, of the results that are kept."""
    found: dict[str, str] = {}
    for gate in LAMBDAS:
        curves = read_curves(RUNS, gate)
        shown = f"{table(curves)}\n\n{fitted_exponents(curves)}" if curves else ""
        found[gate] = shown or "No results yet."
    return found


if __name__ == "__main__":
    main()
