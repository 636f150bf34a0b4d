"""Means over seeds with 95 % confidence intervals, and values between two points."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import nan
from typing import Any

import numpy as np
from scipy import stats

Result = dict[str, Any]


@dataclass(frozen=True)
class Interval:
    """A mean with half the width of its 95 % confidence interval, by Student's t."""

    mean: float
    half_width: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        """The interval of some values, NaNs left out; of one value it is infinite."""
        finite = np.array([value for value in values if not np.isnan(value)])
        if len(finite) == 0:
            return cls(float("nan"), float("nan"))
        if len(finite) == 1:
            return cls(float(finite[0]), float("inf"))
        error = finite.std(ddof=1) / np.sqrt(len(finite))
        return cls(float(finite.mean()), float(error * stats.t.ppf(0.975, len(finite) - 1)))

    @property
    def sign(self) -> int:
        """1 or -1 where 0 is outside the interval, and 0 where it is inside."""
        if abs(self.mean) <= self.half_width or np.isnan(self.mean):
            return 0
        return 1 if self.mean > 0 else -1

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.half_width:.3f}"


def interpolate(points: Sequence[tuple[float, float]], target: float) -> float:
    """Y of a line through points where its x is the target, searched from the last point.

    Args:
        points: Pairs (x, y).
        target: The x.

    Returns:
        The y, NaN where the line does not come to x.
    """
    for (x0, y0), (x1, y1) in reversed(list(pairwise(points))):
        if min(x0, x1) <= target <= max(x0, x1):
            share = 0.0 if x1 == x0 else (target - x0) / (x1 - x0)
            return y0 + share * (y1 - y0)
    return nan
