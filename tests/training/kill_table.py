"""Kill training at many moments, continue it, and print what was found.

python -m tests.training.kill_table [--rounds 3] [--seed 0]
"""

import argparse
import signal
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from tests.releases.test_files import write
from tests.training.killing import (
    RELEASE,
    Left,
    as_options,
    hashes,
    kill_at_file_operations,
    kill_now_and_then,
)
from tests.training.rank_processes import train

LONG = as_options({"synthetic_model.training_samples": 20_000, "sae.c2r_warm_up_steps": 150})
SHORT = as_options({"synthetic_model.training_samples": 200, "sae.k_anneal_steps": 2})
COLUMNS = ("moments", "with a checkpoint", "amid writing", "half-written", "same bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3, help="trainings for each signal")
    options = parser.parse_args()
    table = Table("killed by", title="Training killed at some moment, and continued")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    with TemporaryDirectory() as name:
        folder = Path(name)
        release = write(folder, **RELEASE)
        for kind in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            seen = at_random(release, folder, kind, options.rounds, options.seed)
            table.add_row(f"{kind.name}, at random", *map(str, seen))
        seen = at_every_operation(release, folder)
        table.add_row("SIGKILL, at every operation on a file", *map(str, seen))
    Console(width=120).print(table)


def at_random(
    release: Path, folder: Path, kind: signal.Signals, rounds: int, seed: int
) -> tuple[object, ...]:
    untouched = folder / f"{kind.name}-untouched"
    assert train(1, release, untouched, *LONG, minutes=0) == [0]
    seen: Counter[str] = Counter()
    for each in range(rounds):
        out = folder / f"{kind.name}-{each}"
        killing = kill_now_and_then(
            release, out, kind, *LONG, seed=seed + each, longest=2_000_000
        )
        for left, wrong in killing:
            add(seen, left, wrong)
        seen["same"] += hashes(out) == hashes(untouched)
    return row(seen, rounds)


def at_every_operation(release: Path, folder: Path) -> tuple[object, ...]:
    untouched = folder / "operation-none"
    assert train(1, release, untouched, *SHORT, minutes=0) == [0]
    seen: Counter[str] = Counter()
    for out, left, wrong in kill_at_file_operations(release, folder, *SHORT):
        add(seen, left, wrong)
        assert train(1, release, out, *SHORT) == [0]
        seen["same"] += hashes(out) == hashes(untouched)
    return row(seen, seen["moments"])


def add(seen: Counter[str], left: Left, wrong: list[str]) -> None:
    seen.update(moments=1, checkpoint=left.checkpoints > 0)
    seen.update(partial=left.partial > 0, wrong=len(wrong))


def row(seen: Counter[str], trainings: int) -> tuple[object, ...]:
    counts = (seen[key] for key in ("moments", "checkpoint", "partial", "wrong"))
    return *counts, f"{seen['same']} of {trainings}"


if __name__ == "__main__":
    main()
