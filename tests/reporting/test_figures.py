"""The picture of maximum cosines shows shares of latents, and its bytes never vary."""

import re

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from sae_lens_c2r.reporting.figures import (
    COLORS,
    Distribution,
    color_of,
    max_cosine_figure,
    png,
    svg,
)

SHARES = {"a": [1.0, 0.0, 3.0, 0.0], "b": [0.0, 20.0, 0.0, 0.0]}


def figure(n_saes: int = 2, chance_levels: tuple[float, ...] = (0.2,)) -> Figure:
    names = [*SHARES, *"cdefghijk"][:n_saes]
    return max_cosine_figure(
        [
            Distribution(name, color_of(number), SHARES.get(name, [1.0, 1.0]))
            for number, name in enumerate(names)
        ],
        chance_levels,
    )


def test_every_distribution_is_drawn_as_shares_of_its_latents() -> None:
    (axes,) = figure().axes
    first, second = (patch.get_data() for patch in axes.patches)
    assert list(first.values) == [0.25, 0, 0.75, 0]
    assert list(second.values) == [0, 1, 0, 0]
    assert list(first.edges) == [0, 0.25, 0.5, 0.75, 1]
    assert [to_hex(patch.get_facecolor()) for patch in axes.patches] == list(COLORS[:2])


@pytest.mark.parametrize(("n_saes", "filled"), [(1, True), (3, True), (4, False)])
def test_many_distributions_are_lines_so_that_all_are_seen(n_saes: int, filled: bool) -> None:
    (axes,) = figure(n_saes).axes
    assert len(axes.patches) == n_saes
    assert {patch.get_fill() for patch in axes.patches} == {filled}


def test_the_legend_has_each_label_and_the_chance_level_once() -> None:
    drawn = figure(chance_levels=(0.3, 0.2, 0.3))
    (axes,) = drawn.axes
    assert sorted(line.get_xdata()[0] for line in axes.lines) == [0.2, 0.3]
    shown = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert sorted(shown) == ["a", "b", "random directions"]


def test_a_distribution_without_a_label_is_not_in_the_legend() -> None:
    distributions = [Distribution("kind", "#000000", [1]), Distribution(None, "#000000", [1])]
    (axes,) = max_cosine_figure(distributions, []).axes
    assert [text.get_text() for text in axes.figure.legends[0].get_texts()] == ["kind"]


def test_svg_is_an_element_with_its_text_as_text() -> None:
    shown = svg(figure())
    assert shown.startswith("<svg")
    assert shown.rstrip().endswith("</svg>")
    for text in ("share of latents", "cosine with the nearest other latent", "a", "b"):
        assert re.search(rf"<text[^>]*>{text}</text>", shown)


def test_the_same_numbers_make_the_same_bytes() -> None:
    assert svg(figure()) == svg(figure())
    assert png(figure()) == png(figure())
    assert svg(figure()) != svg(figure(1))


def test_png_names_no_software_and_no_date() -> None:
    content = png(figure())
    assert content.startswith(b"\x89PNG")
    assert b"Software" not in content
    assert b"date" not in content.lower()


def test_colors_begin_again_after_the_last() -> None:
    assert [color_of(number) for number in range(len(COLORS))] == list(COLORS)
    assert color_of(len(COLORS)) == COLORS[0]


@pytest.mark.parametrize("labels", [["a", "b"], ["saes/" + "long/" * 12, "b", "c"]])
def test_the_legend_is_over_nothing_that_is_drawn(labels: list[str]) -> None:
    each = [Distribution(label, color_of(0), [1.0] * 10) for label in labels]
    figure = max_cosine_figure(each, [0.5])
    png(figure)  # which lays it out
    [legend], [axes] = figure.legends, figure.axes
    below = axes.get_window_extent().y1 - legend.get_window_extent().y0
    assert below < 1  # a pixel
    assert axes.get_legend() is None
    assert [text.get_text() for text in legend.get_texts()] == [*labels, "random directions"]
