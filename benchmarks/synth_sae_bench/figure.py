"""The benchmark's figure."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.statistics import Interval, Result
from benchmarks.synth_sae_bench.claims import METRICS, metrics_of
from benchmarks.synth_sae_bench.curves import PLAIN, of_full_length, strengths_of
from benchmarks.synth_sae_bench.world import Size

CURVES = (
    "C2R",
    "C2R, excess gate",
    "OrtSAE",
    "OrtSAE, excess gate",
    "C2R, directions only",
    "C2R, activations only",
)
DRAWN = (
    "f1",
    "mcc",
    "absorption",
    "absorption_by_found_children",
    "features_found",
    "composition",
    "highest_jaccard",
)


def figure(size: Size, results: Sequence[Result]) -> Figure:
    """Every method's curve over its strength: what is gained against what it costs.

    Args:
        size: Which size.
        results: Its results, of which those of other training lengths are left out.

    Returns:
        The figure, a row for each sparsity.
    """
    results = of_full_length(size, results)
    ks = [k for k in sorted(size.ks) if any(each["k"] == k for each in results)]
    metrics = [metric for metric in DRAWN if metric in metrics_of(results)]
    drawn = Figure(figsize=(3.4 * len(metrics), 0.4 + 3.2 * len(ks)), layout="constrained")
    rows = drawn.subplots(len(ks), len(metrics), squeeze=False)
    for k, panels in zip(ks, rows, strict=True):
        shown = [each for each in results if each["k"] == k]
        for panel, metric in zip(panels, metrics, strict=True):
            _draw_curves(panel, shown, metric)
        panels[0].set_ylabel(f"k = {k}")
    legends = [panels[0].get_legend_handles_labels() for panels in rows]
    handles, labels = max(legends, key=lambda legend: len(legend[1]))
    columns = min(len(labels), len(metrics) + 1)  # More would be wider than the panels.
    drawn.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    return drawn


def _draw_curves(panel: Axes, results: Sequence[Result], metric: str) -> None:
    for name in CURVES:
        if not strengths_of(results, name):
            continue
        points = [(PLAIN, 0.0), *((name, each) for each in strengths_of(results, name))]
        x, y = (
            [_interval(results, *point, of).mean for point in points]
            for of in ("explained_variance", metric)
        )
        color = f"C{CURVES.index(name)}"
        panel.plot(x, y, marker="o", markersize=3, linewidth=1, label=name, color=color)
    plain = _interval(results, PLAIN, 0.0, "explained_variance").mean
    panel.axvline(plain, color="gray", linewidth=0.8, linestyle=":")
    panel.set(xlabel="explained variance", title=METRICS[metric])
    panel.locator_params(axis="x", nbins=4)
    panel.spines[["top", "right"]].set_visible(False)


def _interval(results: Sequence[Result], method: str, strength: float, metric: str) -> Interval:
    return Interval.of(
        [
            each[metric]
            for each in results
            if (each["method"], each["strength"]) == (method, strength)
        ]
    )
