"""How a claim is judged: by the interval of a difference that is paired by seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.statistics import Interval, Result, interpolate

EQUAL = 0.01  # of explained variance or a correlation: what is lost below it is preserved


@dataclass(frozen=True)
class Comparison:
    """A claim that one method is higher or lower in a metric than another.

    Args:
        claim: In a sentence.
        paper: The paper's figures, if it claims that.
        metric: What is compared here.
        of: Architecture and options of the one.
        less: Those of the other; `None` where a number takes its place.
        sign: Whether the one should be higher, 1, or lower, -1; 0 for at most `EQUAL` lower.
        number: What the one is compared with where there is no other.
        equal: A metric in which the other is to come to the same: it is then taken on straight
            lines between the strengths at which it was trained, from BatchTopK, which is
            strength 0, on; where it comes there more than once, at the strongest.
    """

    claim: str
    paper: str
    metric: str
    of: tuple[str, dict[str, Any]]
    less: tuple[str, dict[str, Any]] | None
    sign: int
    number: float = 0.0
    equal: str | None = None

    def measured(self, results: Sequence[Result]) -> Interval:
        """The difference in one regime, an interval over seeds.

        A seed's value is the mean over the sparsities at which both were trained; where there
        is only one method, over all of its sparsities.

        Args:
            results: Those of one regime.

        Returns:
            The interval.
        """
        first = self._values(results, self.of)
        second = dict.fromkeys(first, self.number)
        if self.less is not None and self.equal is not None:
            second = self._at_equal(results, self.less[0], self.equal)
        elif self.less is not None:
            second = self._values(results, self.less)
        by_seed: dict[int, list[float]] = {}
        for seed, k in first:
            if (seed, k) in second:
                by_seed.setdefault(seed, []).append(first[seed, k] - second[seed, k])
        return Interval.of([_mean(values) for values in by_seed.values()])

    def _values(
        self, results: Sequence[Result], method: tuple[str, dict[str, Any]]
    ) -> dict[tuple[int, int], float]:
        return {where: each[self.metric] for where, each in _of(results, method).items()}

    def _at_equal(
        self, results: Sequence[Result], name: str, equal: str
    ) -> dict[tuple[int, int], float]:
        target = _of(results, self.of)
        found = {}
        for where, plain in _of(results, ("batchtopk", {})).items():
            curve = [
                each
                for each in results
                if (each["architecture"], each["seed"], each["k"]) == (name, *where)
                and all(option.endswith("_coefficient") for option, _ in each["options"])
            ]
            if where in target and len(curve) > 1:  # one strength is no curve
                curve.sort(key=_strength)
                points = [(each[equal], each[self.metric]) for each in (plain, *curve)]
                found[where] = interpolate(points, target[where][equal])
        return found

    def verdict(self, found: Interval) -> str:
        """What a difference says of the claim."""
        if found.half_width != found.half_width or found.half_width == float("inf"):
            return "not measured"
        if self.sign == 0:
            if found.mean - found.half_width >= -EQUAL:
                return "agrees"
            return "differs" if found.mean + found.half_width < -EQUAL else "undecided"
        return {self.sign: "agrees", -self.sign: "differs", 0: "undecided"}[found.sign]

    def judged(self, results: Sequence[Result]) -> str:
        """The verdict and the difference that it rests on, in Markdown."""
        found = self.measured(results)
        shown = f"{found.mean + self.number:+.3f} ± {found.half_width:.3f}"
        return f"**{self.verdict(found)}** {shown}"


def _of(
    results: Sequence[Result], method: tuple[str, dict[str, Any]]
) -> dict[tuple[int, int], Result]:
    name, options = method
    return {
        (each["seed"], each["k"]): each
        for each in results
        if each["architecture"] == name and dict(each["options"]) == options
    }


def _strength(result: Result) -> float:
    """The coefficient that the options name; the default, which they do not, is the lowest."""
    named = (value for name, value in result["options"] if name.endswith("_coefficient"))
    return float(next(named, 0.0))


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if not np.isnan(value)]
    return float(np.mean(finite)) if finite else float("nan")
