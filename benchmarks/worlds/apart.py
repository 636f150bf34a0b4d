"""Worlds that are drawn from other seeds than the SAEs in them, beside those that are not."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from benchmarks.experiment import Drawn, Size, read_yaml
from benchmarks.worlds import four_worlds, synth_sae_bench, transfer

DATA = read_yaml(Path(__file__))


def drawn_apart(size: Size) -> Size:
    """Return a size with worlds drawn from seeds of their own, and the methods to try again."""
    methods = DATA["methods"][size.world.partition("/")[0]]
    return replace(size, **methods, other_samples=(), world_seeds_after=DATA["added"])


HIERARCHIES = [size for size in transfer.SIZES["all"] if size.world_seed is None]
SIZES = {
    "all": [
        drawn_apart(size)
        for size in (*HIERARCHIES, *four_worlds.ALL, *synth_sae_bench.SIZES["2k-fresh"])
    ],
    "quick": [replace(drawn_apart(four_worlds.QUICK), seeds=1)],
}


def draw(rows: pd.DataFrame) -> Drawn:  # noqa: ARG001
    """Draw nothing: `python -m benchmarks.evidence` shows these rows beside the others."""
    return Drawn({})
