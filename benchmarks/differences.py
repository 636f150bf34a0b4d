"""Differences between methods in the rows that all worlds keep, and as cells of tables."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.compare import Contrast, Interval, at_strength, label, over_seeds, points_of
from benchmarks.experiment import CHOICE_SEED, PLAIN, read_yaml
from benchmarks.rows import read
from sae_lens_c2r.reporting.tables import markdown_table

RESULTS = Path("benchmarks/results")
SHOWN = read_yaml(Path(__file__).with_name("evidence"))
DATA, COLUMNS, SMALLEST = SHOWN["data"], SHOWN["columns"], SHOWN["smallest"]
MEASURES = ["unexplained", *list(COLUMNS)[1:], *SHOWN["drawn"]]
POINTS = [("C2R", 5.0), ("OrtSAE", 0.25), ("Matryoshka", 0.0)]  # of the figure
MORE_POINTS = [*POINTS, ("C2R", 2.0), ("C2R", 20.0), ("OrtSAE", 1.0)]
NARROW = "\N{NARROW NO-BREAK SPACE}"
Differences = Mapping[str, Interval]
ByPoint = Mapping[tuple[str, float], Differences]  # by method and strength
ByData = Mapping[str, ByPoint]


@cache
def rows_kept(world: str) -> pd.DataFrame:
    """Return all rows that a world's file has."""
    return pd.DataFrame(read(RESULTS / world / "runs.jsonl"))


def rows_of(
    world: str, samples: int, k: float | None = None, *, kept_by: str = ""
) -> pd.DataFrame:
    """Return the rows of a data set, by the measures of differences."""
    kept = rows_kept(kept_by or world.partition("/")[0])
    rows = kept[(kept.world == world) & (kept.samples == samples) & (kept.seed != CHOICE_SEED)]
    if k is not None:
        rows = rows[rows.k == k]
    rows = rows.assign(unexplained=1 - rows.explained_variance)
    for name, instances in SHOWN["instances"].items():
        rows[name] = next((rows[each] for each in instances if each in rows), np.nan)
    rows["above_chance"] = (rows.composition - rows.chance_composition).clip(lower=0)
    return rows.reindex(columns=rows.columns.union(MEASURES))


def differences(rows: pd.DataFrame, contrast: Contrast) -> Differences:
    """Return differences over seeds; of the unexplained, in percent of BatchTopK's, too."""
    gaps = contrast.by_seed_and_k(rows, MEASURES).astype(float).dropna(how="all")
    n_ks = gaps.groupby("seed").unexplained.transform("size")
    gaps = gaps[n_ks == n_ks.max()]  # each seed's mean is over the same sparsities
    plain = at_strength(rows, PLAIN, 0, MEASURES).loc[gaps.index].groupby("seed").mean()
    gaps = gaps.groupby("seed").mean()
    gaps["percent"] = 100 * gaps.unexplained / plain.unexplained
    gaps["percent_of_interest"] = 100 * SMALLEST["unexplained"] / plain.unexplained
    return over_seeds(gaps if len(gaps) > 2 else gaps * float("nan"))  # of two none is told


def from_plain(rows: pd.DataFrame) -> ByPoint:
    """Return the differences from BatchTopK of those points that were trained."""
    return {
        (method, strength): differences(rows, Contrast(method, PLAIN, [strength, 0]))
        for method, strength in MORE_POINTS
        if (method, strength) in points_of(rows)
    }


def cell(differences: Differences, measure: str) -> str:
    """Return a difference for a table, bold where it is told from 0 and of interest."""
    found = differences[measure]
    if not found.half_width < float("inf"):
        return ""
    by, digits = ("unexplained", 1) if measure == "percent" else (measure, 3)
    text = f"{found.mean:+.{digits}f} ± {found.half_width:.{digits}f}"
    text = re.sub(r"\b0(?=\.\d{3})", "", text).replace(" ", NARROW)
    judged = differences[by]
    return f"**{text}**" if abs(judged.mean) > max(judged.half_width, SMALLEST[by]) else text


def by_method(found: ByData) -> dict[tuple[str, str], Differences]:
    """Return differences by the first two cells of a line: a part of the rows, and a method."""
    return {
        (part, label(*point)): each
        for part, here in found.items()
        for point, each in here.items()
    }


def by_k(*data: pd.DataFrame) -> ByData:
    """Return the differences from BatchTopK by sparsity."""
    return {f"{k:g}": from_plain(here) for rows in data for k, here in rows.groupby("k")}


def table(
    lines: Mapping[Any, Differences],
    head: Sequence[str],
    *without: str,
    columns: Mapping[str, str] = COLUMNS,
) -> str:
    """Return a table of differences: a line for each tuple, a column for what any has."""
    known = (name for name in columns if any(cell(each, name) for each in lines.values()))
    shown = [name for name in known if name not in without]
    body = [[*about, *(cell(each, name) for name in shown)] for about, each in lines.items()]
    return markdown_table([*head, *(columns[name] for name in shown)], body)
