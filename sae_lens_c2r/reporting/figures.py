"""Pictures that several reports share, as SVG."""

from collections.abc import Mapping, Sequence
from io import StringIO

import matplotlib as mpl
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

COLORS = ("#d95f02", "#1b7a9e", "#7570b3", "#66a61e", "#e7298a", "#a6761d", "#666666")
_FILLED_AT_MOST = 3  # more distributions over each other are easier to read as lines


def max_cosine_histogram(
    max_cosines: Mapping[str, Float[Tensor, " d_sae"]],
    chance_levels: Sequence[float],
    *,
    colors: Mapping[str, str] | None = None,
) -> str:
    """The distributions of maximum cosine over each other, as shares of their latents.

    Args:
        max_cosines: For each SAE, every latent's highest cosine with another.
        chance_levels: About what random directions would have, at each of the SAEs' sizes.
        colors: The SAEs' colors, if not one after the other of `COLORS`.

    Returns:
        An SVG element.
    """
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    axes = figure.subplots()
    filled = len(max_cosines) <= _FILLED_AT_MOST
    for number, (name, cosines) in enumerate(max_cosines.items()):
        axes.hist(
            cosines.cpu().numpy(),
            bins=80,
            range=(0, 1),
            weights=[1 / len(cosines)] * len(cosines),
            histtype="stepfilled" if filled else "step",
            alpha=0.6 if filled else 1.0,
            color=colors[name] if colors else COLORS[number % len(COLORS)],
            label=name,
        )
    for number, level in enumerate(sorted(set(chance_levels))):
        label = None if number else "chance level"
        axes.axvline(level, color="#444", linestyle="--", linewidth=1, label=label)
    axes.set(
        xlim=(0, 1), xlabel="cosine with the nearest other latent", ylabel="share of latents"
    )
    axes.legend(frameon=False)
    return svg(figure)


def svg(figure: Figure) -> str:
    """A figure as an SVG element: text stays text, and the same numbers make the same bytes.

    Args:
        figure: The figure.

    Returns:
        The element, to stand in HTML or in a file of its own.
    """
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    buffer = StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "sae-lens-c2r"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    document = buffer.getvalue()
    return document[document.index("<svg") :]
