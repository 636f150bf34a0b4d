"""From the runs to a figure and a table: do the curves of all settings fall on each other?"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.parallel import read
from benchmarks.statistics import Result
from benchmarks.transfer.rules import FACTORS, LAMBDAS, Setting, factors, rules
from sae_lens_c2r.penalties.gates import Gate

METRICS = {
    "composition above chance": lambda run: run["composition"] - run["chance_composition"],
    "absorption": lambda run: run.get("absorption", math.nan),
    "explained variance": lambda run: run["explained_variance"],
}
TOLERATED_LOSS = 0.01  # of explained variance: what is lost beyond it, the knee lies before
PAPERS_LAMBDA = 5.0


@dataclass(frozen=True)
class Curve:
    """What became of one setting as lambda grew from 0, in mean over the seeds."""

    setting: Setting
    gate: Gate
    norm: float
    literal: NDArray[np.float64]  # the literal coefficients, rising
    metrics: dict[str, NDArray[np.float64]]

    @property
    def multipliers(self) -> dict[str, float]:
        """What each rule multiplies lambda by."""
        return rules(self.setting, self.norm, self.gate)

    @property
    def halfway(self) -> float:
        """The literal coefficient at which composition is halfway to its chance level."""
        values = self.metrics["composition above chance"]
        return self._first(values, lambda v: v <= values[0] / 2)

    @property
    def knee(self) -> float:
        """The literal coefficient from which on too much explained variance is lost."""
        values = self.metrics["explained variance"]
        return self._first(values, lambda v: v <= values[0] - TOLERATED_LOSS)

    def _first(self, values: NDArray[np.float64], reached: Callable[[float], bool]) -> float:
        """The first coefficient at which it is reached, interpolated; NaN if it never is."""
        grid = np.geomspace(self.literal[1] / 100, self.literal[-1], 5000)
        smooth = np.interp(grid, self.literal, values)
        return next((c for c, v in zip(grid, smooth, strict=True) if reached(v)), math.nan)


def read_curves(results: Path, gate: Gate) -> list[Curve]:
    """The runs of every setting with a gate, by rising lambda, of seeds that have every one."""
    ours = [run for run in read(results) if run["gate"] == gate or run["lambda_"] == 0]
    lines = Counter((Setting(**run["setting"]), run["seed"]) for run in ours)
    runs: dict[Setting, dict[float, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for run in ours:
        setting = Setting(**run["setting"])
        if lines[setting, run["seed"]] == len(LAMBDAS[gate]):
            runs[setting][run["lambda_"]].append(run)
    return [_curve(setting, gate, runs[setting]) for setting in sorted(runs)]


def _curve(setting: Setting, gate: Gate, by_lambda: dict[float, list[Result]]) -> Curve:
    by_lambda = dict(sorted(by_lambda.items()))
    everything = [run for runs in by_lambda.values() for run in runs]
    norm = statistics.mean(run["norm"] for run in everything)
    literal = [runs[0]["literal_coefficient"] for runs in by_lambda.values()]
    metrics = {
        name: np.array([statistics.mean(map(metric, runs)) for runs in by_lambda.values()])
        for name, metric in METRICS.items()
    }
    return Curve(setting, gate, norm, np.array(literal), metrics)


def table(curves: list[Curve]) -> str:
    """For every rule, where the curves turn and how far apart they do, in Markdown."""
    columns = [
        "lambda by",
        "data",
        "composition halfway to chance at",
        "spread, decades",
        "settings that get there",
        f"{TOLERATED_LOSS:.0%} of variance lost at",
        "spread, decades",
        "settings that lose it",
    ]
    lines = [
        f"| {' | '.join(columns)} |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for rule in curves[0].multipliers:
        for data in sorted({curve.setting.data for curve in curves}):
            cells = []
            for point in ("halfway", "knee"):
                found = [
                    getattr(curve, point) / curve.multipliers[rule]
                    for curve in curves
                    if curve.setting.data == data
                ]
                logs = [math.log10(value) for value in found if not math.isnan(value)]
                middle = f"{10 ** statistics.mean(logs):.2g}" if logs else ""
                spread = f"{statistics.stdev(logs):.2f}" if len(logs) > 1 else ""
                cells += [middle, spread, f"{len(logs)} of {len(found)}"]
            lines.append(f"| {rule} | {data} | {' | '.join(cells)} |")
    return "\n".join(lines)


def fitted_exponents(curves: list[Curve]) -> str:
    """The literal coefficient as a product of powers, by least squares, in Markdown."""
    names = ("r", "B", "k", "d")
    lines = [
        "| at | data | " + " | ".join(f"exponent of {name}" for name in names) + " |",
        "|---|---|" + "--:|" * len(names),
        f"| the rule | | 1 | -0.5 | 0.5 | {int('d' in FACTORS[curves[0].gate])} |",
    ]
    titles = {
        "halfway": "composition halfway to chance",
        "knee": f"{TOLERATED_LOSS:.0%} of variance lost",
    }
    for point, title in titles.items():
        for data in sorted({curve.setting.data for curve in curves}):
            rows, targets = [], []
            for curve in curves:
                literal, setting = getattr(curve, point), curve.setting
                if setting.data != data or math.isnan(literal):
                    continue
                sizes = (curve.norm, setting.batch_size, setting.d_sae, setting.d_in)
                rows.append([1.0, *map(math.log, sizes)])
                logarithm = factors(setting, curve.norm)["ln n"]
                known = logarithm if "ln n" in FACTORS[curve.gate] else 1.0
                targets.append(math.log(literal / known))
            table = np.array(rows)
            fitted = np.linalg.lstsq(table, np.array(targets), rcond=None)[0][1:]
            varies = np.ptp(table[:, 1:], axis=0) > math.log(1.5)
            cells = " | ".join(
                f"{exponent:.2f}" if of_use else ""
                for exponent, of_use in zip(fitted, varies, strict=True)
            )
            lines.append(f"| {title} | {data} | {cells} |")
    return "\n".join(lines)


def figure(curves: list[Curve]) -> Figure:
    """A row for every rule, a column for every metric, a line for every setting."""
    colors = {"hierarchy": "#d95f02", "fixed hierarchy": "#e6ab02", "minilm": "#1b7a9e"}
    names = list(curves[0].multipliers)
    fig = Figure(figsize=(11, 2.1 * len(names)), layout="constrained")
    grid = fig.subplots(len(names), len(METRICS), squeeze=False)
    for row, rule in zip(grid, names, strict=True):
        for axes, metric in zip(row, METRICS, strict=True):
            for curve in curves:
                values = curve.metrics[metric]
                if metric == "explained variance":
                    values = values - values[0]
                lambdas = curve.literal / curve.multipliers[rule]
                axes.plot(
                    lambdas[1:],  # a logarithmic axis has no place for 0
                    values[1:],
                    color=colors[curve.setting.data],
                    linewidth=0.8,
                    alpha=0.6,
                )
            axes.axvline(PAPERS_LAMBDA, color="#444", linestyle=":", linewidth=1)
            axes.set_xscale("log")
            if metric == "explained variance":
                axes.set_ylim(-0.08, 0.01)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(rule)
    for axes, metric in zip(grid[0], METRICS, strict=True):
        axes.set_title(metric + (", change" if metric == "explained variance" else ""))
    for axes in grid[-1]:
        axes.set_xlabel("lambda")
    for data, color in colors.items():
        grid[0][0].plot([], [], color=color, label=data)
    grid[0][0].legend(frameon=False, fontsize=8)
    return fig
