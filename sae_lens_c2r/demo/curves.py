"""The demo's curves, as SVG to stand inside its report."""

from matplotlib.figure import Figure

from sae_lens_c2r.demo.settings import PLAIN, REGULARIZED
from sae_lens_c2r.demo.training import History
from sae_lens_c2r.reporting.figures import COLORS as ALL_COLORS
from sae_lens_c2r.reporting.figures import svg

COLORS = dict(zip((PLAIN, REGULARIZED), ALL_COLORS, strict=False))


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
    return svg(figure)
