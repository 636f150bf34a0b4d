"""Absorption by training length: at which budget a figure holds."""

from collections.abc import Sequence

from benchmarks.statistics import Interval, Result
from benchmarks.study.claims import C2R, ORT, PLAIN
from benchmarks.study.judgement import Comparison
from benchmarks.study.tables import markdown, regimes_of
from benchmarks.study.world import REGIMES

COMPARED = {
    "C2R less BatchTopK": Comparison("", "", "absorption", (C2R, {}), (PLAIN, {}), -1),
    "C2R less OrtSAE": Comparison("", "", "absorption", (C2R, {}), (ORT, {}), -1),
}


def lengths_table(results: Sequence[Result]) -> str:
    """Absorption by three methods after every number of steps that there is.

    Args:
        results: Of all lengths.

    Returns:
        The table in Markdown, with intervals over the seeds.
    """
    rows = []
    for name in regimes_of(results):
        ours = [
            each
            for each in results
            if (each["regime"], each["k"]) == (name, REGIMES[name].ks[0])
        ]
        for steps in sorted({each["steps"] for each in ours}):
            then = [each for each in ours if each["steps"] == steps]
            rows.append([name, f"{steps:,}", *_absorption(then), *_compared(then)])
    head = ["", "steps", "BatchTopK", "C2R", "OrtSAE", *COMPARED]
    return markdown(head, rows)


def _absorption(results: Sequence[Result]) -> list[str]:
    return [
        str(
            Interval.of(
                [
                    each["absorption"]
                    for each in results
                    if each["architecture"] == method and not each["options"]
                ]
            )
        )
        for method in (PLAIN, C2R, ORT)
    ]


def _compared(results: Sequence[Result]) -> list[str]:
    return [comparison.judged(results) for comparison in COMPARED.values()]
