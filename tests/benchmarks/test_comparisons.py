"""Intervals, lines between points, and how methods are compared and judged."""

import math

import pandas as pd
import pytest
from scipy import stats

from benchmarks.compare import EQUALS, Contrast, Interval, at_equal, over_seeds, verdict
from benchmarks.experiment import Size
from benchmarks.report import methods_table, sparsities_table

PRICE = "0.005 of explained variance below BatchTopK"
HALFWAY = "composition halfway from BatchTopK's to chance"


def test_intervals_are_students() -> None:
    found = Interval.of([0.1, 0.4, 0.2, 0.9, math.nan])
    low, high = stats.t.interval(0.95, 3, loc=0.4, scale=stats.sem([0.1, 0.4, 0.2, 0.9]))
    assert found.mean - found.half_width == pytest.approx(low)
    assert found.mean + found.half_width == pytest.approx(high)
    assert Interval.of([3.0]).half_width == math.inf


@pytest.mark.parametrize(
    ("expected", "mean", "half_width", "smallest", "said"),
    [
        *((-1, -0.2, 0.1, 0, "yes"), (-1, 0.2, 0.1, 0, "no"), (1, -0.1, 0.2, 0, "undecided")),
        *((1, 0.2, 0.1, 0.3, "too small"), (1, 0.4, 0.1, 0.3, "yes")),
        *((0, -0.002, 0.001, 0.01, "yes"), (0, -0.2, 0.1, 0.01, "no")),
        *((0, -0.01, 0.02, 0.01, "undecided"), (0, 1.0, math.inf, 0.01, "not measured")),
    ],
)
def test_a_difference_is_judged_by_its_interval(
    expected: int, mean: float, half_width: float, smallest: float, said: str
) -> None:
    assert verdict(Interval(mean, half_width), expected, smallest) == said


def curves(*seeds: int, k: int = 8) -> pd.DataFrame:
    """At a price of .005 C2R has an F1 of .55, OrtSAE of .50."""
    names = ["method", "strength", "explained_variance", "composition", "f1"]
    lines = [("BatchTopK", 0, 0.8, 0.4, 0.6), ("C2R", 2, 0.8, 0.4, 0.6)]
    lines += [("C2R", 5, 0.79, 0.3, 0.5), ("OrtSAE", 0.1, 0.8, 0.4, 0.6)]
    found = pd.DataFrame([*lines, ("OrtSAE", 0.25, 0.79, 0.2, 0.4)], columns=names)
    found = found.assign(chance_composition=0.3, k=k)
    return pd.concat(found.assign(seed=seed) for seed in seeds)


def test_methods_are_compared_where_they_cost_or_achieve_the_same() -> None:
    rows = curves(0, 1)
    at_price = at_equal(rows, "C2R", EQUALS[PRICE], ["f1"]).f1
    assert at_price.to_dict() == pytest.approx({(0, 8): 0.55, (1, 8): 0.55})
    assert at_equal(rows, "OrtSAE", EQUALS[HALFWAY], ["f1"]).f1[0, 8] == pytest.approx(0.55)
    contrast = Contrast("C2R", "OrtSAE", [PRICE, PRICE])
    more = pd.concat([rows, curves(2)[:1], curves(0, k=5)])
    gaps = contrast.by_seed_and_k(more, ["f1"])
    assert over_seeds(gaps)["f1"].mean == pytest.approx(0.05)
    for ks, seeds in (([8], {0, 1}), ([8, 5], {0})):
        found = contrast.by_complete_seed(more, ks, ["explained_variance"])
        assert set(found.index) == {(seed, k) for seed in seeds for k in ks}
    one_strength = rows[~rows.strength.isin([0.1, 2])]
    assert at_equal(one_strength, "C2R", EQUALS[PRICE], ["f1"]).f1.isna().all()


def test_no_mean_over_sparsities_is_shown_of_what_one_of_them_lacks() -> None:
    rows = pd.concat([curves(0, 1, 2), curves(0, 1, 2, k=5).assign(f1=math.nan)])
    size = Size("toy/main", [8, 5], samples=1, batch_size=1, methods={})
    cells = [line.split(" | ") for line in sparsities_table(rows, size).splitlines()]
    found = {line[3]: line[5:7] for line in cells if line[:3] == ["| C2R", "BatchTopK", "at 5"]}
    cost = "-0.010 ± 0.000 **behind**"
    assert found == {
        "8": [cost, "-0.100 ± 0.000 **behind**"],
        "5": [cost, ""],
        "all": [cost, ""],
    }
    assert "nan" not in methods_table(rows, size)
