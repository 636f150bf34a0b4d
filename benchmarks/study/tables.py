"""The study's tables."""

from collections.abc import Sequence
from typing import Any

from benchmarks.statistics import Interval, Result
from benchmarks.study.claims import CLAIMS, UNTESTED
from benchmarks.study.further import FURTHER
from benchmarks.study.judgement import Comparison
from benchmarks.study.runs import METHODS
from benchmarks.study.world import REGIMES, Regime

METRICS = {
    "explained_variance": "explained variance",
    "composition": "composition",
    "absorption": "absorption",
    "partial_absorption": "partial absorption",
    "split": "split",
    "mcc": "MCC",
    "f1": "F1",
    "dead_latents": "dead latents",
}


def tables(results: Sequence[Result]) -> dict[str, str]:
    """All tables, in Markdown, by their names."""
    parts = {
        "claims": claims_table(results),
        "verdicts": verdicts_table(results),
        "further": further_table(results),
    }
    for regime in REGIMES.values():
        ours = [result for result in results if result["regime"] == regime.name]
        if ours:
            parts[regime.name] = "\n\n".join(
                (
                    _describe(regime, ours),
                    methods_table(regime, ours),
                    variants_table(regime, ours),
                )
            )
    return parts


def verdicts_table(results: Sequence[Result]) -> str:
    """In how many claims each world agrees."""
    verdicts = ("agrees", "undecided", "differs")
    rows = []
    for name in regimes_of(results):
        ours = [result for result in results if result["regime"] == name]
        found = [each.verdict(each.measured(ours)) for each in CLAIMS]
        rows.append([name, *(str(found.count(verdict)) for verdict in verdicts)])
    return _markdown(["", *verdicts], rows)


def claims_table(results: Sequence[Result]) -> str:
    """Claim, the paper's figures, and for each regime ours with what it says."""
    names = regimes_of(results)
    rows = [[each.claim, each.paper, *_judged(each, results)] for each in CLAIMS]
    rows += [
        [claim, paper, *[f"cannot be tested here: {why}"] * len(names)]
        for claim, paper, why in UNTESTED
    ]
    return _markdown(["claim", "the paper", *names], rows)


def further_table(results: Sequence[Result]) -> str:
    """The same of what the paper does not claim."""
    rows = [[each.claim, *_judged(each, results)] for each in FURTHER]
    return _markdown(["claim", *regimes_of(results)], rows)


def regimes_of(results: Sequence[Result]) -> list[str]:
    """The names of the worlds that there are results of."""
    return [name for name in REGIMES if any(each["regime"] == name for each in results)]


def _judged(comparison: Comparison, results: Sequence[Result]) -> list[str]:
    return [
        comparison.judged([each for each in results if each["regime"] == name])
        for name in regimes_of(results)
    ]


def methods_table(regime: Regime, results: Sequence[Result]) -> str:
    """The five methods at all sparsities."""
    rows = []
    for k in sorted(regime.ks):
        for method in METHODS:
            rows.append([f"{method}, k {k}", *_cells(results, method, k, {})])
    return _markdown(["", *METRICS.values()], rows)


def variants_table(regime: Regime, results: Sequence[Result]) -> str:
    """Everything else, at the one sparsity."""
    k = regime.ks[0]
    seen = dict.fromkeys(
        (result["architecture"], tuple(map(tuple, result["options"])))
        for result in results
        if result["k"] == k
    )
    rows = [
        [
            ", ".join([name, *(f"{key} {value}" for key, value in options)]),
            *_cells(results, name, k, dict(options)),
        ]
        for name, options in sorted(seen, key=_order)
        if options or name not in METHODS
    ]
    return _markdown([f"k {k}", *METRICS.values()], rows)


def _order(variant: tuple[str, tuple[tuple[str, Any], ...]]) -> tuple[Any, ...]:
    """By name and options, strengths rising."""
    name, options = variant
    return name, [
        (key, value if isinstance(value, int | float) else 0) for key, value in options
    ]


def _describe(regime: Regime, results: Sequence[Result]) -> str:
    chance = results[0]["chance_composition"]
    return (
        f"{regime.n_features} features in {regime.d_in} dimensions, {regime.d_sae} latents. "
        f"Chance level of composition: {chance:.3f}."
    )


def _cells(
    results: Sequence[Result], method: str, k: int, options: dict[str, Any]
) -> list[str]:
    chosen = [
        result
        for result in results
        if (result["architecture"], result["k"], dict(result["options"]))
        == (method, k, options)
    ]
    return [str(Interval.of([each[metric] for each in chosen])) for metric in METRICS]


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
