"""`python -m benchmarks.repair`: train what is missing, then the tables."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from benchmarks.parallel import execute_all, read
from benchmarks.repair import minilm, report
from benchmarks.repair.runs import SEEDS, STEPS, Run, execute
from benchmarks.study.page import fill

RESULTS, PAGE = Path("benchmarks/results/repair"), Path("docs/repair.md")
KNOWN, MINILM = "runs.jsonl", "minilm.json"


def main() -> None:
    """Run the benchmark; stopped and started again, it goes on."""
    parser = ArgumentParser(description="SAEs that exist, trained on with C2R.")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--work", type=Path, default=Path("build/repair"), help="for the SAEs")
    parser.add_argument("--demo", type=Path, help="what `sae-lens-c2r demo` has written")
    parser.add_argument("--draw-only", action="store_true", help="only write what there is")
    arguments = parser.parse_args()
    path = arguments.out / KNOWN
    wanted = [
        Run(seed, arguments.steps, str(arguments.work)) for seed in range(arguments.seeds)
    ]
    if not arguments.draw_only:
        done = {(each["seed"], each["steps"]) for each in read(path)}
        todo = [run for run in wanted if (run.seed, run.steps) not in done]
        execute_all(todo, execute, path, processes=arguments.processes)
        if arguments.demo is not None:
            found = minilm.execute(arguments.demo, arguments.work)
            (arguments.out / MINILM).write_text(json.dumps(found, indent=1) + "\n")
    keys = {(run.seed, run.steps) for run in wanted}
    results = [each for each in read(path) if (each["seed"], each["steps"]) in keys]
    tables = {"known features": report.known_features(results)}
    tables["the demo's SAE"] = _of_minilm(arguments.out / MINILM)
    text = "\n\n".join(f"## {name.capitalize()}\n\n{table}" for name, table in tables.items())
    (arguments.out / "tables.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    if arguments.out == RESULTS and arguments.steps == STEPS:
        PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")


def _of_minilm(path: Path) -> str:
    if not path.is_file():
        return "Not measured yet: `--demo` names the demo's output."
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return report.minilm(result)


if __name__ == "__main__":
    main()
