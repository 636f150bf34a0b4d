"""Intervals, lines between points, and how methods are compared and judged."""

import math
from typing import Any

import pandas as pd
import pytest
from scipy import stats

from benchmarks.compare import EQUALS, Contrast, Interval, at_equal, over_seeds, verdict

PRICE = "0.005 of explained variance below BatchTopK"
HALFWAY = "composition halfway from BatchTopK's to chance"


def test_intervals_are_students() -> None:
    found = Interval.of([0.1, 0.4, 0.2, 0.9, math.nan])
    low, high = stats.t.interval(0.95, 3, loc=0.4, scale=stats.sem([0.1, 0.4, 0.2, 0.9]))
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx(
        (low, high)
    )
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


def row(
    method: str, strength: float, seed: int, k: int = 8, **metrics: float
) -> dict[str, Any]:
    about = {"method": method, "strength": strength, "seed": seed, "k": k}
    numbers = {"explained_variance": 0.8, "composition": 0.4, "chance_composition": 0.3}
    return {**about, **numbers, **metrics}


def curves(seed: int) -> list[dict[str, Any]]:
    """At a price of .005 C2R has an F1 of .55, OrtSAE of .50."""
    return [
        row("BatchTopK", 0.0, seed, f1=0.6),
        row("C2R", 2, seed, f1=0.6),
        row("OrtSAE", 0.1, seed, f1=0.6),
        row("C2R", 5, seed, explained_variance=0.79, composition=0.3, f1=0.5),
        row("OrtSAE", 0.25, seed, explained_variance=0.79, composition=0.2, f1=0.4),
    ]


def test_methods_are_compared_where_they_cost_or_achieve_the_same() -> None:
    rows = pd.DataFrame([*curves(0), *curves(1)])
    at_price = at_equal(rows, "C2R", EQUALS[PRICE], ["f1"]).f1
    assert at_price.to_dict() == pytest.approx({(0, 8): 0.55, (1, 8): 0.55})
    assert at_equal(rows, "OrtSAE", EQUALS[HALFWAY], ["f1"]).f1[0, 8] == pytest.approx(0.55)
    contrast = Contrast("C2R", "OrtSAE", [PRICE, PRICE])
    beside = [row("BatchTopK", 0.0, 2), *({**each, "k": 5} for each in curves(0))]
    more = pd.concat([rows, pd.DataFrame(beside)])
    gaps = contrast.by_seed_and_k(more, ["f1"])
    assert over_seeds(gaps)["f1"].mean == pytest.approx(0.05)
    assert set(contrast.of_complete_seeds(more, [8]).seed) == {0, 1}
    assert set(contrast.of_complete_seeds(more, [8, 5]).seed) == {0}
    one_strength = rows[~rows.strength.isin([0.1, 2])]
    assert at_equal(one_strength, "C2R", EQUALS[PRICE], ["f1"]).f1.isna().all()
