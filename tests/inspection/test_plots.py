"""The pictures show the numbers of every SAE, in a color of its own."""

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from sae_lens_c2r.inspection import plots
from sae_lens_c2r.reporting.figures import COLORS
from tests.inspection.planted import behavior, inspection


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures before they are rendered."""
    monkeypatch.setattr(plots, "svg", lambda figure: figure)


def labels(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.figure.legends[0].get_texts()]


def heights(axes: Axes, number: int) -> np.ndarray:
    """Of the bins of a distribution that is drawn as a line."""
    return np.asarray(axes.patches[number].get_xy())[1::2, 1]


@pytest.mark.usefixtures("figures")
def test_highest_cosines_are_drawn_of_all_latents() -> None:
    inspections = [inspection("a"), inspection("b", d_sae=8)]
    (axes,) = plots.cosine_distributions(inspections).axes
    for each, drawn in zip(inspections, axes.patches, strict=True):
        shares = [count / each.d_sae for count in each.cosine_counts]
        assert list(drawn.get_data().values) == shares
    assert {line.get_xdata()[0] for line in axes.lines} == {
        each.chance_composition for each in inspections
    }
    assert sorted(labels(axes)) == ["a", "b", "random directions"]


@pytest.mark.usefixtures("figures")
def test_frequencies_are_of_the_latents_that_fire() -> None:
    behaviors = {"a": behavior((10, 1, 0, 1)), "b": behavior((0, 0, 0, 5))}
    (axes,) = plots.firing_frequencies(behaviors).axes
    assert sorted(labels(axes)) == ["a", "b"]
    drawn = {to_hex(patch.get_edgecolor()): patch for patch in axes.patches}
    assert set(drawn) == set(COLORS[:2])
    totals = sorted(heights(axes, number).sum() for number in range(2))
    assert totals == [1, 3], "dead latents are drawn, or live ones are not"


@pytest.mark.usefixtures("figures")
def test_absorption_is_drawn_as_ratios_and_against_the_condition() -> None:
    left, right = plots.consolidation({"a": behavior()}).axes
    points = np.asarray(right.collections[0].get_offsets())
    assert points[:, 0] == pytest.approx([1 / 2, 1 / 3, 1 / 4])
    assert points[:, 1] == pytest.approx([0.6, 0.1, 0.3])
    (diagonal,) = right.lines
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata()) == [0, 1]
    assert heights(left, 0).sum() == 3
    assert left.get_xlim()[0] <= 0 <= np.log(9) <= left.get_xlim()[1]


@pytest.mark.usefixtures("figures")
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_ratio_without_a_logarithm_is_left_out() -> None:
    found = behavior()
    found.absorption.A[0] = 0
    left, _ = plots.consolidation({"a": found}).axes
    assert heights(left, 0).sum() == 2


def test_an_sae_without_absorption_pairs_has_a_picture() -> None:
    assert plots.consolidation({"a": behavior(n_pairs=0)}).startswith("<svg")


def test_an_sae_of_which_nothing_fires_has_a_picture() -> None:
    assert plots.firing_frequencies({"a": behavior((0, 0))}).startswith("<svg")


@pytest.mark.usefixtures("figures")
def test_there_are_more_saes_than_colors() -> None:
    behaviors = {str(number): behavior() for number in range(len(COLORS) + 1)}
    (axes,) = plots.firing_frequencies(behaviors).axes
    assert len(axes.patches) == len(COLORS) + 1
    colors = [to_hex(patch.get_edgecolor()) for patch in axes.patches]
    assert colors.count(COLORS[0]) == 2


def test_pictures_are_svg_with_the_names_as_text() -> None:
    drawn = (
        plots.cosine_distributions([inspection("an-sae")]),
        plots.firing_frequencies({"an-sae": behavior()}),
        plots.consolidation({"an-sae": behavior()}),
    )
    for picture in drawn:
        assert picture.startswith("<svg")
        assert "an-sae" in picture
    assert torch.equal(behavior().times_fired, torch.tensor([6, 5, 0, 1]))
