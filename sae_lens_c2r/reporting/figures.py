"""Pictures that several reports share, as SVG or as PNG."""

from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

COLORS = ("#d95f02", "#1b7a9e", "#7570b3", "#66a61e", "#e7298a", "#a6761d", "#666666")
_FILLED_AT_MOST = 3  # more distributions over each other are easier to read as lines
_SHORT_LABEL = 45  # signs of a label that leaves room for another one beside it
_LINE_HEIGHT = 0.22  # inches
_DPI = 160  # of a PNG
# How an SAE's latents are spread over equal intervals from 0 to 1: label, color, counts.
Distribution = tuple[str | None, str, Sequence[float]]


def color_of(number: int) -> str:
    """The color of the SAE of a number: after the last one comes the first again."""
    return COLORS[number % len(COLORS)]


def legend_label(name: str) -> str:
    """A name for a legend: matplotlib hides a leading `_`, and reads formulas between `$`."""
    shown = name.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def max_cosine_figure(
    distributions: Sequence[Distribution], chance_levels: Iterable[float]
) -> Figure:
    """The distributions of maximum cosine over each other, as shares of their latents."""
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    axes = figure.subplots()
    filled = len(distributions) <= _FILLED_AT_MOST
    for label, color, counts in distributions:
        axes.stairs(
            [count / sum(counts) for count in counts],
            [number / len(counts) for number in range(len(counts) + 1)],
            color=color,
            label=label and legend_label(label),
            fill=filled,
            alpha=0.6 if filled else 1.0,
        )
    for number, level in enumerate(sorted(set(chance_levels))):
        label = None if number else "random directions"
        axes.axvline(level, color="#444", linestyle="--", linewidth=1, label=label)
    axes.set(
        xlim=(0, 1), xlabel="cosine with the nearest other latent", ylabel="share of latents"
    )
    legend_above(figure)
    return figure


def legend_above(figure: Figure) -> None:
    """Put the legend of a figure's first axes above it, where nothing is drawn."""
    axes = figure.axes[0]
    handles, labels = axes.get_legend_handles_labels()
    columns = 1 if max(map(len, labels)) > _SHORT_LABEL else 2
    figure.legend(handles, labels, loc="outside upper left", frameon=False, ncols=columns)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + _LINE_HEIGHT * -(-len(labels) // columns))


def svg(figure: Figure) -> str:
    """A figure as an SVG element: text stays text, and the same numbers make the same bytes."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "sae-lens-c2r"}):
        document = _saved(figure, format="svg", metadata={"Date": None}).decode()
    return document[document.index("<svg") :]


def png(figure: Figure) -> bytes:
    """A figure as a PNG file: the same numbers make the same bytes."""
    return _saved(figure, format="png", dpi=_DPI, metadata={"Software": None})


def _saved(figure: Figure, **options: Any) -> bytes:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    buffer = BytesIO()
    figure.savefig(buffer, **options)
    return buffer.getvalue()
