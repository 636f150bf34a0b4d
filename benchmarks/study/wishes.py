"""Which architecture to train, and with what lambda: for each wish what it brings and costs."""

from collections.abc import Sequence
from typing import Any

from benchmarks.statistics import Interval, Result
from benchmarks.study.world import REGIMES
from sae_lens_c2r.reporting.tables import markdown_table

# Wish, architecture, its options. Of C2R's lambdas the one that has the most of what is wished.
WISHES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("reconstruction as it is, less redundancy", "batchtopk_c2r", {}),
    ("most features found", "batchtopk_c2r", {"c2r_coefficient": 1.0}),
    ("least absorption", "matryoshka_batchtopk", {}),
    ("least redundancy, at a price", "batchtopk_c2r", {"c2r_coefficient": 20.0}),
)
METRICS = {
    "explained_variance": "explained variance",
    "absorption": "absorption",
    "mcc": "MCC",
    "f1": "F1",
    "composition": "composition",
}
BASELINE = "batchtopk"


def wishes_table(results: Sequence[Result]) -> str:
    """What each differs by from BatchTopK, in mean over the worlds, and over the seeds."""
    rows = []
    for wish, architecture, options in WISHES:
        name = f"`{architecture}`"
        if architecture.endswith("_c2r"):
            name += f", λ {options.get('c2r_coefficient', 5):g}"
        cells = []
        for metric in METRICS:
            found = difference(results, architecture, options, metric)
            cells.append(f"{found.mean:+.3f} ± {found.half_width:.3f}")
        rows.append([wish, name, *cells])
    return markdown_table(["you want", "train", *METRICS.values()], rows)


def difference(
    results: Sequence[Result], architecture: str, options: dict[str, Any], metric: str
) -> Interval:
    """A metric less BatchTopK's, at the sparsity of the comparisons that have but one.

    Args:
        results: Of all worlds.
        architecture: SAELens's name.
        options: Other fields of the config.
        metric: Which metric.

    Returns:
        The interval over the seeds, each of which is the mean over the worlds.
    """
    ours = _values(results, architecture, options, metric)
    plain = _values(results, BASELINE, {}, metric)
    by_seed: dict[int, list[float]] = {}
    for seed, world in ours.keys() & plain.keys():
        by_seed.setdefault(seed, []).append(ours[seed, world] - plain[seed, world])
    return Interval.of([sum(gaps) / len(gaps) for gaps in by_seed.values()])


def _values(
    results: Sequence[Result], architecture: str, options: dict[str, Any], metric: str
) -> dict[tuple[int, str], float]:
    return {
        (each["seed"], each["regime"]): each[metric]
        for each in results
        if each["architecture"] == architecture
        and dict(each["options"]) == options
        and each["k"] == REGIMES[each["regime"]].ks[0]
    }
