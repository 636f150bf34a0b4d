"""Methods at equal strength: points on their curves that cost or achieve the same."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan

from benchmarks.statistics import Interval, Result, interpolate
from benchmarks.synth_sae_bench.methods import METHODS
from benchmarks.synth_sae_bench.world import Size

PLAIN = "BatchTopK"
PRICE, COMPOSITION = "explained_variance", "composition"


@dataclass(frozen=True)
class Equal:
    """What two methods are compared at.

    Args:
        name: In words.
        metric: What is to be the same, `explained_variance` or `composition`.
        target: Its value, of the BatchTopK SAE with the same seed and sparsity.
    """

    name: str
    metric: str
    target: Callable[[Result], float]


def _price(lost: float) -> Equal:
    return Equal(
        f"{lost:g} of explained variance below BatchTopK",
        PRICE,
        lambda plain: plain[PRICE] - lost,
    )


PRICES = tuple(_price(lost) for lost in (0.002, 0.005, 0.01))
HALFWAY = Equal(
    "composition halfway from BatchTopK's to chance",
    COMPOSITION,
    lambda plain: (plain[COMPOSITION] + plain["chance_composition"]) / 2,
)
AT_CHANCE = Equal(
    "composition at the level of chance", COMPOSITION, lambda plain: plain["chance_composition"]
)
BELOW_CHANCE = Equal(
    "composition a fifth below chance",
    COMPOSITION,
    lambda plain: 0.8 * plain["chance_composition"],
)
EQUALS = (*PRICES, HALFWAY, AT_CHANCE, BELOW_CHANCE)


def of_full_length(size: Size, results: Sequence[Result]) -> list[Result]:
    """Leave out what was trained for longer or shorter.

    Args:
        size: Which size.
        results: Its results.

    Returns:
        Those of SAEs that were trained on `size.training_samples`.
    """
    return [each for each in results if each["training_samples"] == size.training_samples]


def points_of(results: Sequence[Result]) -> list[tuple[str, float]]:
    """Which methods and strengths there are, in the order in which they are shown."""
    names = list(METHODS)
    found = {(each["method"], each["strength"]) for each in results}
    return sorted(found, key=lambda point: (names.index(point[0]), point[1]))


def at_every_length(results: Sequence[Result]) -> list[Result]:
    """Leave out strengths that not every training length has.

    With them a curve would be finer at one length than at another, and what is read off it
    would differ by that, too.

    Args:
        results: Results of one size.

    Returns:
        Those of methods and strengths that were trained on each number of samples.
    """
    lengths_of: dict[tuple[str, float], set[int]] = {}
    for each in results:
        point = each["method"], each["strength"]
        lengths_of.setdefault(point, set()).add(each["training_samples"])
    lengths = set().union(*lengths_of.values())
    return [each for each in results if lengths_of[each["method"], each["strength"]] == lengths]


def at_equal(
    results: Sequence[Result], method: str, equal: Equal, metric: str
) -> dict[tuple[int, int], float]:
    """A metric of a method where it comes to the same as others, by seed and sparsity.

    The curve begins at BatchTopK, the method at strength 0, and is followed from its strong
    end: where it comes to the target more than once, the strongest point counts.

    Args:
        results: Of one size and training length.
        method: Name of the method.
        equal: What is to be the same.
        metric: What is asked for.

    Returns:
        A value for each (seed, k), NaN where the curve does not come to the target; none where
        the method was trained at one strength only.
    """
    found = {}
    plain = {(each["seed"], each["k"]): each for each in results if each["method"] == PLAIN}
    for where, start in plain.items():
        ours = [
            each
            for each in results
            if each["method"] == method and (each["seed"], each["k"]) == where
        ]
        if len(ours) < 2:  # One strength is no curve.
            continue
        curve = [start, *sorted(ours, key=lambda each: each["strength"])]
        points = [(each[equal.metric], each[metric]) for each in curve]
        found[where] = interpolate(points, equal.target(start))
    return found


def at_strength(
    results: Sequence[Result], method: str, strength: float, metric: str
) -> dict[tuple[int, int], float]:
    """A metric of a method at a strength, by seed and sparsity."""
    return {
        (each["seed"], each["k"]): each[metric]
        for each in results
        if (each["method"], each["strength"]) == (method, strength)
    }


def difference(
    first: dict[tuple[int, int], float], second: dict[tuple[int, int], float]
) -> Interval:
    """The first less the second, paired: mean over the sparsities, interval over the seeds.

    Args:
        first: Values by (seed, k).
        second: Those that they are compared with.

    Returns:
        The interval; of no pairs NaN.
    """
    by_seed: dict[int, list[float]] = {}
    for (seed, k), value in first.items():
        gap = value - second.get((seed, k), nan)
        if gap == gap:
            by_seed.setdefault(seed, []).append(gap)
    return Interval.of([sum(gaps) / len(gaps) for gaps in by_seed.values()])


def strengths_of(results: Sequence[Result], method: str) -> list[float]:
    """The strengths of a method that there are results of, rising."""
    ours = {each["strength"] for each in results if each["method"] == method}
    return sorted(ours & set(METHODS[method].strengths))
