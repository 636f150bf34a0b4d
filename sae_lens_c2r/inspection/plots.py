"""Pictures of what was found of SAEs, as SVG: of their weights, and of what they do on text."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from sae_lens_c2r.inspection.behavior import Behavior
from sae_lens_c2r.inspection.latents import LatentOnText
from sae_lens_c2r.inspection.measures import Inspection
from sae_lens_c2r.reporting.figures import (
    Distribution,
    color_of,
    legend_above,
    max_cosine_figure,
    svg,
)


def cosine_figure(inspections: Sequence[Inspection]) -> Figure:
    """How alike the latents are: the distributions of their highest cosines."""
    distributions = [
        Distribution(each.name, color_of(number), each.cosine_counts)
        for number, each in enumerate(inspections)
    ]
    return max_cosine_figure(distributions, [each.chance_composition for each in inspections])


def cosine_distributions(inspections: Sequence[Inspection]) -> str:
    """The picture of `cosine_figure`, as SVG."""
    return svg(cosine_figure(inspections))


def firing_frequencies(behaviors: Mapping[str, Behavior]) -> str:
    """The distributions of log10 of the latents' frequencies, as SVG, without dead latents."""
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    axes = figure.subplots()
    for number, (name, behavior) in enumerate(behaviors.items()):
        fires = behavior.frequencies[behavior.frequencies > 0]
        axes.hist(
            fires.log10().numpy(),
            bins=60,
            range=(-6, 0),
            histtype="step",
            color=color_of(number),
            label=name,
        )
    axes.set(xlabel="log10 of the share of tokens", ylabel="latents")
    legend_above(figure)
    return svg(figure)


def activation_histogram(latent: LatentOnText) -> str:
    """How strongly a latent fires where it does, as SVG."""
    figure = Figure(figsize=(4.2, 1.8), layout="constrained")
    axes = figure.subplots()
    axes.hist(latent.activations.numpy(), bins=40, color=color_of(1))
    axes.set(xlabel="activation, where it fires", ylabel="tokens")
    return svg(figure)


def consolidation(behaviors: Mapping[str, Behavior]) -> str:
    """The paper's two figures on Eq. (13): log A/B of the pairs, and alpha against the bound.

    Returns:
        An SVG element. Points above the diagonal satisfy the condition.
    """
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, (name, behavior) in enumerate(behaviors.items()):
        pairs = behavior.absorption
        ratio = np.log((pairs.A / pairs.B).numpy())
        left.hist(
            ratio[np.isfinite(ratio)],
            bins=40,
            histtype="step",
            color=color_of(number),
            label=name,
        )
        right.scatter(
            pairs.thresholds.numpy(),
            pairs.alpha.numpy(),
            s=4,
            alpha=0.5,
            color=color_of(number),
        )
    right.plot([0, 1], [0, 1], color="#444", linestyle="--", linewidth=1)
    left.set(xlabel="log(A / B)", ylabel="absorption pairs")
    right.set(
        xlim=(0, 1), ylim=(0, 1), xlabel="right-hand side of Eq. (13)", ylabel="leak alpha"
    )
    legend_above(figure)
    return svg(figure)
