"""The study's figures."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.statistics import Interval, Result
from benchmarks.study.runs import LAMBDAS, METHODS
from benchmarks.study.tables import METRICS, regimes_of
from benchmarks.study.world import REGIMES

LABELS = {"matryoshka_batchtopk": "matryoshka", "batchtopk_c2r": "batchtopk_c2r"}


def trade_offs(results: Sequence[Result]) -> Figure:
    """Absorption and composition against explained variance, a line a method."""
    names = regimes_of(results)
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
    names = regimes_of(results)
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
    names = regimes_of(results)
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
