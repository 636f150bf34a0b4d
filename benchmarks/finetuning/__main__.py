"""`python -m benchmarks.finetuning`: train what is missing, then the tables."""

import json
from argparse import ArgumentParser
from pathlib import Path

from benchmarks.finetuning import minilm, report
from benchmarks.finetuning.runs import SEEDS, STEPS, Run, execute
from benchmarks.page import refill
from benchmarks.parallel import execute_all, read

RESULTS, PAGE = Path("benchmarks/results/finetuning"), Path("docs/finetune.md")
KNOWN, MINILM = "runs.jsonl", "minilm.json"


def tables_of(out: Path, *, steps: int) -> dict[str, str]:
    """The tables of what was measured so far, by their names on the page."""
    results = [each for each in read(out / KNOWN) if each["steps"] == steps]
    path = out / MINILM
    of_demo = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    return {
        "known features": report.known_features(results),
        "the demo's SAE": report.minilm(of_demo),
    }


def main() -> None:
    """Run the benchmark; stopped and started again, it goes on."""
    parser = ArgumentParser(description="SAEs that exist, trained on with C2R.")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument(
        "--work", type=Path, default=Path("build/finetuning"), help="for the SAEs"
    )
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
    tables = tables_of(arguments.out, steps=arguments.steps)
    text = "\n\n".join(
        f"## {name[0].upper()}{name[1:]}\n\n{table}" for name, table in tables.items()
    )
    (arguments.out / "tables.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    if arguments.out == RESULTS and arguments.steps == STEPS:
        refill(PAGE, tables)


if __name__ == "__main__":
    main()
