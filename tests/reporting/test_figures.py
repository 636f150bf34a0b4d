"""The picture of maximum cosines shows shares of latents, and its bytes never vary."""

from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from sae_lens_c2r.reporting.figures import COLORS, color_of, max_cosine_figure, png, svg

SHARES = {"a": [1.0, 0.0, 3.0, 0.0], "b": [0.0, 20.0, 0.0, 0.0]}


def figure(n_saes: int = 2, chance_levels: tuple[float, ...] = (0.2,)) -> Figure:
    names = [*SHARES, *"cdefghijk"][:n_saes]
    counts = [SHARES.get(name, [1.0, 1.0]) for name in names]
    colors = [color_of(number) for number in range(n_saes)]
    return max_cosine_figure(list(zip(names, colors, counts, strict=True)), chance_levels)


def test_every_distribution_is_drawn_as_shares_of_its_latents() -> None:
    (axes,) = figure().axes
    first, second = (patch.get_data() for patch in axes.patches)
    assert list(first.values) == [0.25, 0, 0.75, 0]
    assert list(second.values) == [0, 1, 0, 0]
    assert list(first.edges) == [0, 0.25, 0.5, 0.75, 1]
    assert [to_hex(patch.get_facecolor()) for patch in axes.patches] == list(COLORS[:2])
    assert color_of(len(COLORS)) == COLORS[0]


def test_the_same_numbers_make_the_same_bytes() -> None:
    assert svg(figure()) == svg(figure()) != svg(figure(1))
    content = png(figure())
    assert content == png(figure())
    assert content.startswith(b"\x89PNG")
    assert b"Software" not in content
    assert b"date" not in content.lower()
