"""The study's tables and figures."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.statistics import Interval, Result
from benchmarks.study.claims import CLAIMS, UNTESTED
from benchmarks.study.further import FURTHER
from benchmarks.study.judgement import Comparison
from benchmarks.study.runs import LAMBDAS, METHODS
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
LABELS = {"matryoshka_batchtopk": "matryoshka", "batchtopk_c2r": "batchtopk_c2r"}


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
    for name in _regimes_of(results):
        ours = [result for result in results if result["regime"] == name]
        found = [each.verdict(each.measured(ours)) for each in CLAIMS]
        rows.append([name, *(str(found.count(verdict)) for verdict in verdicts)])
    return _markdown(["", *verdicts], rows)


def claims_table(results: Sequence[Result]) -> str:
    """Claim, the paper's figures, and for each regime ours with what it says."""
    names = _regimes_of(results)
    rows = [[each.claim, each.paper, *_judged(each, results)] for each in CLAIMS]
    rows += [
        [claim, paper, *[f"cannot be tested here: {why}"] * len(names)]
        for claim, paper, why in UNTESTED
    ]
    return _markdown(["claim", "the paper", *names], rows)


def further_table(results: Sequence[Result]) -> str:
    """The same of what the paper does not claim."""
    rows = [[each.claim, *_judged(each, results)] for each in FURTHER]
    return _markdown(["claim", *_regimes_of(results)], rows)


def _regimes_of(results: Sequence[Result]) -> list[str]:
    return [name for name in REGIMES if any(each["regime"] == name for each in results)]


def _judged(comparison: Comparison, results: Sequence[Result]) -> list[str]:
    cells = []
    for name in _regimes_of(results):
        found = comparison.measured([each for each in results if each["regime"] == name])
        shown = f"{found.mean + comparison.number:+.3f} ± {found.half_width:.3f}"
        cells.append(f"**{comparison.verdict(found)}** {shown}")
    return cells


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


def _cells(results: Sequence[Result], method: str, k: int, options: dict) -> list[str]:
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


def trade_offs(results: Sequence[Result]) -> Figure:
    """Absorption and composition against explained variance, a line a method."""
    names = [name for name in REGIMES if any(each["regime"] == name for each in results)]
    figure = Figure(figsize=(4.2 * len(names), 6.4), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False)
    for column, name in enumerate(names):
        for row, metric in enumerate(("absorption", "composition")):
            panel = axes[row, column]
            for method in METHODS:
                points = []
                for k in sorted(REGIMES[name].ks):
                    chosen = [
                        each
                        for each in results
                        if (each["regime"], each["architecture"], each["k"])
                        == (name, method, k)
                        and not each["options"]
                    ]
                    points.append(
                        [
                            Interval.of([each[key] for each in chosen])
                            for key in ("explained_variance", metric)
                        ]
                    )
                panel.errorbar(
                    [point[0].mean for point in points],
                    [point[1].mean for point in points],
                    xerr=[point[0].half_width for point in points],
                    yerr=[point[1].half_width for point in points],
                    label=LABELS.get(method, method),
                    marker="o",
                    markersize=3,
                    linewidth=1,
                )
            panel.set(xlabel="explained variance", ylabel=metric, title="" if row else name)
            panel.spines[["top", "right"]].set_visible(False)
    _legend(figure, axes[0, 0])
    return figure


def over_lambda(results: Sequence[Result]) -> Figure:
    """What grows and falls with lambda."""
    names = [name for name in REGIMES if any(each["regime"] == name for each in results)]
    metrics = ("explained_variance", "composition", "absorption")
    figure = Figure(figsize=(9.6, 2.8), layout="constrained")
    for panel, metric in zip(figure.subplots(1, len(metrics)), metrics, strict=True):
        for name in names:
            intervals = []
            for value in LAMBDAS:
                options = {} if value == 5 else {"c2r_coefficient": value}
                intervals.append(
                    Interval.of(
                        [
                            each[metric]
                            for each in results
                            if (each["regime"], each["architecture"], each["k"])
                            == (name, "batchtopk_c2r", REGIMES[name].ks[0])
                            and dict(each["options"]) == options
                        ]
                    )
                )
            panel.errorbar(
                LAMBDAS,
                [interval.mean for interval in intervals],
                yerr=[interval.half_width for interval in intervals],
                label=name,
                marker="o",
                markersize=3,
                linewidth=1,
            )
        panel.set(xscale="log", xlabel="lambda", title=METRICS[metric])
        panel.spines[["top", "right"]].set_visible(False)
    _legend(figure, panel)
    return figure


def over_frequency(results: Sequence[Result]) -> Figure:
    """Absorption of parents, from the rarest fifth of them to the most frequent."""
    names = [name for name in REGIMES if any(each["regime"] == name for each in results)]
    figure = Figure(figsize=(3.2 * len(names), 2.8), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        for method in METHODS:
            by_seed: dict[int, list[list[float]]] = {}  # each with all its sparsities
            for result in results:
                same = (result["regime"], result["architecture"]) == (name, method)
                if same and not result["options"]:
                    by_seed.setdefault(result["seed"], []).append(
                        result["absorption_by_frequency"]
                    )
            means = [np.nanmean(each, axis=0) for each in by_seed.values()]
            groups = [Interval.of(group) for group in zip(*means, strict=True)]
            panel.errorbar(
                range(1, len(groups) + 1),
                [group.mean for group in groups],
                yerr=[group.half_width for group in groups],
                label=LABELS.get(method, method),
                marker="o",
                markersize=3,
                linewidth=1,
            )
        panel.set(xlabel="fifth of the parents, rare to frequent", title=name)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("absorption")
    _legend(figure, panels[0])
    return figure


def _legend(figure: Figure, panel: Axes) -> None:
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
