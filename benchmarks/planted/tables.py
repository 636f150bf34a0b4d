"""Absorption by the same children in two SAEs."""

from collections.abc import Sequence

from benchmarks.statistics import Interval, Result
from benchmarks.synth_sae_bench.curves import PLAIN, of_full_length, points_of
from benchmarks.synth_sae_bench.methods import label
from benchmarks.synth_sae_bench.world import Size
from sae_lens_c2r.reporting.tables import markdown_table


def same_children_table(size: Size, results: Sequence[Result]) -> str:
    """Absorption less BatchTopK's by the children that have a latent in both SAEs of a seed.

    Args:
        size: Which size, and with it which training length.
        results: Its results, with `absorption_of_edges`, a rate for each edge whose parent and
            child were found, `None` for others.

    Returns:
        The table in Markdown, with intervals over the seeds.
    """
    results = of_full_length(size, results)
    plain = {each["seed"]: each for each in results if each["method"] == PLAIN}
    rows = []
    for method, strength in points_of(results):
        if method == PLAIN:
            continue
        ours = [
            _in_both(each, plain[each["seed"]])
            for each in results
            if (each["method"], each["strength"]) == (method, strength)
            and each["seed"] in plain
        ]
        children = Interval.of([len(pairs) for pairs in ours])
        less = Interval.of(
            [
                sum(first - second for first, second in pairs) / len(pairs)
                for pairs in ours
                if pairs
            ]
        )
        rows.append(
            [
                label(method, strength),
                f"{children.mean:.0f}",
                f"{less.mean:+.3f} ± {less.half_width:.3f}",
            ]
        )
    return markdown_table(["", "children", f"absorption by them, less {PLAIN}'s"], rows)


def _in_both(first: Result, second: Result) -> list[tuple[float, float]]:
    return [
        (here, there)
        for here, there in zip(
            first["absorption_of_edges"], second["absorption_of_edges"], strict=True
        )
        if here is not None and there is not None
    ]
