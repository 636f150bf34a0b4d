"""The report's pictures, as SVG to stand inside its HTML."""

from io import StringIO

import matplotlib as mpl
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from sae_lens_c2r.demo.settings import PLAIN, REGULARIZED
from sae_lens_c2r.demo.training import History

COLORS = {PLAIN: "#d95f02", REGULARIZED: "#1b7a9e"}


def max_cosine_histogram(
    max_cosines: dict[str, Float[Tensor, " d_sae"]], chance_level: float
) -> str:
    """The distributions of maximum cosine over each other.

    Args:
        max_cosines: For each SAE, every latent's highest cosine with another.
        chance_level: About what random directions would have.

    Returns:
        An SVG element.
    """
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    axes = figure.subplots()
    for name, cosines in max_cosines.items():
        axes.hist(
            cosines.cpu().numpy(),
            bins=80,
            range=(0, 1),
            alpha=0.6,
            color=COLORS[name],
            label=name,
        )
    axes.axvline(chance_level, color="#444", linestyle="--", linewidth=1, label="chance level")
    axes.set(xlim=(0, 1), xlabel="cosine with the nearest other latent", ylabel="latents")
    axes.legend(frameon=False)
    return _svg(figure)


def training_curves(histories: dict[str, History]) -> str:
    """Explained variance and composition over the steps of training.

    Args:
        histories: For each SAE, the record of its training.

    Returns:
        An SVG element.
    """
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, history in histories.items():
        left.plot(history.steps, history.explained_variance, color=COLORS[name], label=name)
        right.plot(history.steps, history.composition, color=COLORS[name], label=name)
    left.set(ylim=(0, 1), xlabel="step", title="explained variance (training batch)")
    right.set(ylim=(0, None), xlabel="step", title="composition")
    left.legend(frameon=False, loc="lower right")
    return _svg(figure)


def _svg(figure: Figure) -> str:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    buffer = StringIO()
    # Text stays text, and a run with the same numbers writes the same bytes.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "sae-lens-c2r"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    document = buffer.getvalue()
    return document[document.index("<svg") :]
