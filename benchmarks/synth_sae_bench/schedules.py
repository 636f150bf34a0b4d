"""What another learning rate and decay would have changed."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.parallel import read
from benchmarks.statistics import Result
from benchmarks.synth_sae_bench.claims import METRICS, metrics_of
from benchmarks.synth_sae_bench.curves import (
    PLAIN,
    at_strength,
    difference,
    of_full_length,
    points_of,
)
from benchmarks.synth_sae_bench.methods import label, runs_of
from benchmarks.synth_sae_bench.runs import results_of
from benchmarks.synth_sae_bench.tables import learning_rates, tables
from benchmarks.synth_sae_bench.world import Size
from sae_lens_c2r.reporting.tables import markdown_table


def tables_of_two_schedules(
    size: Size, other: Size, *, folder: Path, seeds: int
) -> dict[str, str]:
    """The tables of a size, of the learning rates, and of the size at another of these.

    Args:
        size: Which size.
        other: The same at another learning rate and decay.
        folder: Where the results are kept.
        seeds: How many.

    Returns:
        The tables in Markdown, by their names; those of `other` end in `, other schedule`.
    """
    ours, others = (
        results_of(runs_of(each, seeds=seeds), folder / f"{each.name}.jsonl")
        for each in (size, other)
    )
    return {
        **tables(size, ours),
        "learning rates": learning_rates(read(folder / f"{size.name}-learning-rates.jsonl")),
        "between schedules": between_table(others, of_full_length(size, ours)),
        **{f"{name}, other schedule": each for name, each in tables(other, others).items()},
    }


def between_table(first: Sequence[Result], second: Sequence[Result]) -> str:
    """What SAEs have in the first results less what they have in the second.

    Of BatchTopK its measures, of others by how much they differ from BatchTopK's: whether a
    method does the same in both, which two verdicts do not say.

    Args:
        first: Of one learning rate and decay.
        second: Of another.

    Returns:
        The table in Markdown, with intervals over the seeds.
    """
    metrics = metrics_of([*first, *second])
    in_both = [point for point in points_of(first) if point in points_of(second)]
    rows = []
    for method, strength in in_both:
        found = [
            difference(*(_effect(each, method, strength, metric) for each in (first, second)))
            for metric in metrics
        ]
        about = PLAIN if method == PLAIN else f"{label(method, strength)} less {PLAIN}"
        rows.append([about, *(f"{each.mean:+.3f} ± {each.half_width:.3f}" for each in found)])
    return markdown_table(["", *(METRICS[metric] for metric in metrics)], rows)


def _effect(
    results: Sequence[Result], method: str, strength: float, metric: str
) -> dict[tuple[int, int], float]:
    """A metric of a method less BatchTopK's, by seed and sparsity; BatchTopK's own as it is."""
    ours = at_strength(results, method, strength, metric)
    if method == PLAIN:
        return ours
    plain = at_strength(results, PLAIN, 0.0, metric)
    return {where: value - plain[where] for where, value in ours.items() if where in plain}
