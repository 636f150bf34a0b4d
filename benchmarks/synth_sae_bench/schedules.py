"""What another learning rate and decay would have changed."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.parallel import read
from benchmarks.statistics import Result
from benchmarks.synth_sae_bench.claims import METRICS, metrics_of
from benchmarks.synth_sae_bench.curves import PLAIN, at_strength, difference, of_full_length
from benchmarks.synth_sae_bench.methods import runs_of
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
    """What BatchTopK has in the first results less what it has in the second.

    Args:
        first: Of one learning rate and decay.
        second: Of another.

    Returns:
        The table in Markdown, with intervals over the seeds.
    """
    metrics = metrics_of([*first, *second])
    found = [
        difference(*(at_strength(results, PLAIN, 0.0, metric) for results in (first, second)))
        for metric in metrics
    ]
    cells = [f"{each.mean:+.3f} ± {each.half_width:.3f}" for each in found]
    return markdown_table(["", *(METRICS[metric] for metric in metrics)], [[PLAIN, *cells]])
