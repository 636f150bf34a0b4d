"""Comparisons of methods over rows: intervals, differences within a seed, and verdicts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

import pandas as pd
from scipy import stats

from benchmarks.experiment import METHODS, PLAIN, read_yaml

PRICE, CHANCE = "explained_variance", "chance_composition"
SEED_AND_K = ["seed", "k"]


@dataclass(frozen=True)
class Metric:
    """A measure, as questions.yaml says it."""

    label: str
    better: int = 1
    smallest: float = 0.01
    by_sparsity: bool = False
    drawn: bool = False


@dataclass(frozen=True)
class Interval:
    """A mean with half the width of its 95 % confidence interval, by Student's t."""

    mean: float
    half_width: float
    count: int = 0  # of the values

    @classmethod
    def of(cls, values: Iterable[float]) -> "Interval":
        """Return the interval of some values, NaNs left out; of one value it is infinite."""
        known = pd.Series(values, dtype=float).dropna()
        n = len(known)
        half_width = known.sem() * stats.t.ppf(0.975, n - 1) if n > 1 else inf if n else nan
        return cls(known.mean(), half_width, n)

    @property
    def signed(self) -> str:
        """The interval of a difference, in a table."""
        return f"{self.mean:+.3f} ± {self.half_width:.3f}"

    def __str__(self) -> str:
        if self.count < 2:
            return f"{self.mean:.3f}" if self.count else ""
        return f"{self.mean:.3f} ± {self.half_width:.3f}"


def verdict(found: Interval, expected: int, smallest: float = 0.0) -> str:
    """Judge by its interval whether a difference has a sign, 1 or -1, or 0 for no loss."""
    if not isfinite(found.half_width):
        return "not measured"
    if expected == 0:
        if found.mean - found.half_width >= -smallest:
            return "yes"
        return "no" if found.mean + found.half_width < -smallest else "undecided"
    if abs(found.mean) < smallest:
        return "too small"
    if abs(found.mean) <= found.half_width:
        return "undecided"
    return "yes" if found.mean * expected > 0 else "no"


def interpolate(points: Iterable[tuple[float, Any]], target: float) -> Any:
    """Return y of a line through (x, y) at the last place with an x, NaN if there is none."""
    for (x0, y0), (x1, y1) in reversed(list(pairwise(points))):
        if min(x0, x1) <= target <= max(x0, x1):
            share = 0.0 if x1 == x0 else (target - x0) / (x1 - x0)
            return y0 + share * (y1 - y0)
    return nan


def at_strength(
    rows: pd.DataFrame, method: str, strength: float, metrics: Sequence[str]
) -> pd.DataFrame:
    """Return metrics of a method at a strength, by seed and sparsity."""
    ours = rows[(rows.method == method) & (rows.strength == strength)]
    return ours.set_index(SEED_AND_K)[list(metrics)]


@dataclass(frozen=True)
class Equal:
    """What methods are compared at, as questions.yaml says it."""

    metric: str
    of: Sequence[Any] = (PLAIN, 0)
    own: float = 1.0
    chance: float = 0.0
    plus: float = 0.0


def at_equal(
    rows: pd.DataFrame, method: str, equal: Equal, metrics: Sequence[str]
) -> pd.DataFrame:
    """Return metrics of a method where it comes to the same as others, by seed and sparsity."""
    # The curve begins at BatchTopK, the method at strength 0, and is followed from its strong
    # end. Where it does not come to the target, or is of one strength only, there are NaNs.
    reached = at_strength(rows, equal.of[0], equal.of[1], [equal.metric, CHANCE])
    targets = equal.own * reached[equal.metric] + equal.chance * reached[CHANCE] + equal.plus
    found = pd.DataFrame(nan, index=targets.index, columns=list(metrics))
    ours = rows[rows.method.isin([PLAIN, method])].sort_values("strength")
    for where, curve in ours.groupby(SEED_AND_K):
        if where in targets.index and len(curve) > 2 and curve.method.iloc[0] == PLAIN:
            values = curve[list(metrics)].to_numpy(float)
            points = zip(curve[equal.metric], values, strict=True)
            found.loc[where] = interpolate(points, targets[where])
    return found


@dataclass(frozen=True)
class Contrast:
    """One method minus another."""

    first: str
    second: str
    at: Sequence[float | str]  # where each of them is: a strength, or a key of `EQUALS`

    def by_seed_and_k(self, rows: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
        """Return the differences in some metrics, those of rows of one training length."""
        first, second = (
            at_equal(rows, method, EQUALS[at], metrics)
            if isinstance(at, str)
            else at_strength(rows, method, at, metrics)
            for method, at in zip((self.first, self.second), self.at, strict=True)
        )
        return first - second

    def by_complete_seed(
        self, rows: pd.DataFrame, ks: Sequence[float], metrics: Sequence[str]
    ) -> pd.DataFrame:
        """Return the differences of those seeds in which they are known at each sparsity."""
        known = self.by_seed_and_k(rows[rows.k.isin(ks)], metrics).dropna(subset=[PRICE])
        return known[known.groupby(level="seed")[PRICE].transform("size") == len(ks)]

    @property
    def words(self) -> tuple[str, str, str]:
        """The methods and where they are compared, in a table."""
        strengths = [f"{at:g}" for at in self.at if at and not isinstance(at, str)]
        where = f"at {' and '.join(strengths)}" if strengths else "as they are"
        return self.first, self.second, self.at[0] if isinstance(self.at[0], str) else where


def over_seeds(values: pd.DataFrame) -> dict[str, Interval]:
    """Return the mean over the sparsities of each column, an interval over the seeds."""
    means = values.groupby(level="seed").mean()
    return {metric: Interval.of(means[metric]) for metric in values.columns}


def intervals(values: pd.DataFrame) -> list[str]:
    """Return the mean of each column with its interval, in a table."""
    return [str(Interval.of(values[name])) for name in values]


_QUESTIONS = read_yaml(Path(__file__).with_name("questions.yaml"))
METRICS = {name: Metric(**about) for name, about in _QUESTIONS["metrics"].items()}
EQUALS = {name: Equal(**about) for name, about in _QUESTIONS["equals"].items()}
CONTRASTS = [Contrast(*each) for each in _QUESTIONS["contrasts"]]


def metrics_of(*parts: pd.DataFrame) -> list[str]:
    """Return the metrics that all of some rows have, in the order in which they are shown."""
    return [
        metric
        for metric in METRICS
        if all(metric in rows and rows[metric].notna().any() for rows in parts)
    ]


def points_of(rows: pd.DataFrame) -> list[tuple[str, float]]:
    """Return which methods and strengths there are, in the order in which they are shown."""
    found = set(zip(rows.method, rows.strength, strict=True))
    return sorted(found, key=lambda point: (list(METHODS).index(point[0]), point[1]))


def label(method: str, strength: float) -> str:
    """Return a method's name, with its strength where it has one."""
    return f"{method} {strength:g}" if METHODS[method].coefficient else method
