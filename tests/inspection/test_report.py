"""Tables, pictures and the report show what was measured, and load nothing."""

import re
from io import StringIO
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from rich.console import Console

from sae_lens_c2r.inspection import report as report_module
from sae_lens_c2r.inspection.comparison import Comparison, MatchedPair
from sae_lens_c2r.inspection.contexts import Pair
from sae_lens_c2r.inspection.measures import SAEReport
from sae_lens_c2r.inspection.report import in_terminal, tables_of
from sae_lens_c2r.reporting.figures import COLORS
from tests.inspection.planted import inspection, latent, on_text, report

ALIKE = Pair(0.93, (latent(11, 1, "<script>alert(1)</script>"), latent(12, 1, "two")), 1)
APART = Pair(0.04, (latent(21, 2, *"ab"), latent(22, 2)), 2)
ONE = Pair(1.0, (latent(21, 2, *"ab"), latent(21, 2, *"ab")), 2)


def comparison(*matches: Pair) -> Comparison:
    kinds = ("merged", "apart_and_firing_together", "apart", "still_alike")
    pairs = {"pairs": 2, **dict.fromkeys(kinds, 1)}
    shown = [MatchedPair(ALIKE, (0.71, 0.65), each) for each in matches]
    return Comparison("a", "b", pairs, {"latents": 0}, shown)


def report_html(*reports: SAEReport, comparisons: Any = (), **options: Any) -> str:
    return report_module.report_html(reports, comparisons, made_by="a command", **options)


def printed(*reports: SAEReport, width: int = 80, comparisons: Any = ()) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(*in_terminal(reports, comparisons, width=width), sep="\n")
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_every_table_has_the_columns_that_were_measured() -> None:
    weights = inspection(
        "a",
        architecture="jumprelu",
        d_sae=65536,
        d_in=2304,
        composition=0.12345,
        chance_composition=0.2,
        pairs=[7, 1234],
    )
    [(title, headings, [(name, cells)], note)] = tables_of([SAEReport(weights)])
    assert (title, name) == ("", "a")
    assert cells == ["jumprelu", "65,536", "2,304", "0.123", "0.200", "7", "1,234"]
    assert len(headings) == len(cells)
    assert "with before" not in note
    _, *on_texts = tables_of([SAEReport(weights), report("b")])
    assert [[name for name, _ in table.rows] for table in on_texts] == [["b"]] * 3
    # Alpha is above the threshold in two of the three pairs.
    assert [table.rows[0][1] for table in on_texts] == [
        ["0.812", "1.2", "1", "0.346", "0.123"],
        ["0.250", "0.062", "1,234", "56", "7"],
        ["3", "0.667", "4.00"],
    ]
    for table in on_texts:
        assert len(table.rows[0][1]) == len(table.headings)


def test_speed_and_what_a_latent_was_have_a_column_where_they_are_known() -> None:
    kept = {"cosine_median": 0.9, "cosine_1st_percentile": 0.508}
    after = report("b", of_training={"tokens_per_second": 3456.5, **kept})
    weights, metrics, *_ = tables_of([report("a"), after])
    assert [cells[-2:] for _, cells in weights.rows] == [["-", "-"], ["0.900", "0.508"]]
    assert [cells[-1] for _, cells in metrics.rows] == ["-", "3,456"]
    assert "Cosine with before" in weights.note


def test_without_absorption_pairs_there_is_nothing_to_average() -> None:
    assert tables_of([report(on_text=on_text(n_pairs=0))])[-1].rows == [("a", ["0"])]


def test_the_tables_fit_a_terminal_of_80_columns() -> None:
    name = "saes/layer_12/width_64k/batchtopk_c2r_k80"
    shown = printed(
        report(name), SAEReport(inspection("saes/[k=3]")), comparisons=[comparison()]
    )
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "…" not in shown
    for cell in (name, "composition", "standard", "0.812", "Jaccard", "1,234", "saes/[k=3]"):
        assert cell in shown
    assert "Of 2 pairs of latents of a with a cosine above 0.7" in " ".join(shown.split())


def test_the_report_of_weights_has_one_picture_and_the_numbers() -> None:
    html = report_html(SAEReport(inspection("<a>")))
    assert html.count("<svg") == 1
    assert "&lt;a&gt;</th><td>standard</td><td>6</td><td>6</td>" in html
    assert "<h1>SAEs, inspected</h1>" in html
    assert "How often they fire" not in html
    assert re.search(r"Made by a command, with Python 3.*sae-lens-c2r \d.*torch \d", html)


def test_the_report_on_text_has_the_pairs_in_context() -> None:
    html = report_html(report("a"))
    assert html.count("<svg") == 3
    for table in tables_of([report("a")]):
        assert "".join(f"<td>{cell}</td>" for cell in table.rows[0][1]) in html
    assert "cosine <b>0.93</b>, 4 and 3 tokens of 10, both on 2, Jaccard <b>0.40</b>" in html
    assert ">latent 11</h3>" in html
    assert "the word <mark>&lt;b&gt;</mark> before" in html
    assert "fires on no token" in html  # latent 12
    nothing = report_html(report("a", on_text=on_text(pairs=[])))
    assert "There are no two alike latents that both fire." in nothing


def test_a_comparison_shows_the_latents_that_match() -> None:
    before, after = report("a", on_text=on_text(pairs=[ALIKE, ALIKE])), report("b")
    found = comparison(APART, ONE)
    html = report_html(before, after, comparisons=[found], curves="<svg>curves</svg>")
    assert "Of 2 pairs of latents of a with a cosine above 0.7" in html
    assert "two latents of cosine <b>0.04</b>, Jaccard <b>1.00</b>: apart and firing" in html
    assert "one latent: merged</p>" in html
    assert "latent 21, cosine 0.71 with the one above" in html
    assert "latent 22, cosine 0.65 with the one above" in html
    assert "<svg>curves</svg>" in html


def test_the_report_names_the_text_and_the_model() -> None:
    html = report_html(report("a"), intro="What this is.")
    assert "<dd>10 tokens of my.txt, read by gpt2</dd>" in html
    assert "<p>What this is.</p>" in html
    assert "read by" not in report_html(SAEReport(inspection("a")))


def test_a_latent_that_fires_nowhere_has_no_histogram() -> None:
    html = report_html(report("a", latents=[latent(5, 0), latent(6, 2)]))
    assert "<b>latent 5</b> fires on 0 tokens of 10" in html
    assert html.count("<svg") == 4


def test_everything_that_is_wide_scrolls_and_nothing_is_loaded() -> None:
    before = report("a", on_text=on_text(pairs=[ALIKE]))
    html = report_html(before, report("b"), comparisons=[comparison(APART)], load="out/b")
    for tag in ("<table>", "<svg"):
        for part in html.split(tag)[:-1]:
            assert part.endswith('<div class="wide">'), part[-80:]
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert not re.search(r'(src|href)="(?!#)', html.replace("xlink:href", "href"))


def test_the_report_says_what_is_known_of_a_training() -> None:
    known = {"model_name": "gpt2", "hook_name": None, "context_size": 0, "secret": "x"}
    norms = torch.tensor([0.0, 2.5])
    html = report_html(
        SAEReport(inspection(trained_as="topk_c2r", metadata=known, decoder_norms=norms))
    )
    assert "<dt>trained as</dt><dd>topk_c2r</dd>" in html
    assert "<dt>model_name</dt><dd>gpt2</dd>" in html
    assert "<dt>context_size</dt><dd>0</dd>" in html
    assert "0 to 2.5; 1 of them 0<" in html
    assert "hook_name" not in html
    assert "secret" not in html


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures before they are rendered."""
    monkeypatch.setattr(report_module, "svg", lambda figure: figure)


def labels(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.figure.legends[0].get_texts()]


def heights(axes: Axes, number: int) -> np.ndarray:
    """Of the bins of a distribution that is drawn as a line."""
    return np.asarray(axes.patches[number].get_xy())[1::2, 1]


def test_highest_cosines_are_drawn_of_all_latents() -> None:
    inspections = [inspection("a"), inspection("b", n_rows=8)]
    (axes,) = report_module.cosine_figure(inspections).axes
    for each, drawn in zip(inspections, axes.patches, strict=True):
        shares = [count / each.d_sae for count in each.cosine_counts]
        assert list(drawn.get_data().values) == shares
    levels = {each.chance_composition for each in inspections}
    assert {line.get_xdata()[0] for line in axes.lines} == levels
    assert sorted(labels(axes)) == ["a", "b", "random directions"]


@pytest.mark.usefixtures("figures")
def test_frequencies_are_of_the_latents_that_fire() -> None:
    reports = [report("a", on_text=on_text((10, 1, 0, 1))), SAEReport(inspection("c"))]
    reports.append(report("b", on_text=on_text((0, 0, 0, 5))))
    (axes,) = report_module.firing_frequencies(reports).axes  # type: ignore[attr-defined]
    assert sorted(labels(axes)) == ["a", "b"]
    drawn = {to_hex(patch.get_edgecolor()) for patch in axes.patches}
    assert drawn == {COLORS[0], COLORS[2]}  # as in the other pictures
    totals = sorted(heights(axes, number).sum() for number in range(2))
    assert totals == [1, 3], "dead latents are drawn, or live ones are not"


@pytest.mark.usefixtures("figures")
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_absorption_is_drawn_as_ratios_and_against_the_condition() -> None:
    found = report()
    left, right = report_module.consolidation([found]).axes  # type: ignore[attr-defined]
    points = np.asarray(right.collections[0].get_offsets())
    assert points[:, 0] == pytest.approx([1 / 2, 1 / 3, 1 / 4])
    assert points[:, 1] == pytest.approx([0.6, 0.1, 0.3])
    (diagonal,) = right.lines
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata()) == [0, 1]
    assert heights(left, 0).sum() == 3
    assert found.on_text is not None
    found.on_text.absorption.A[0] = 0  # its ratio has no logarithm
    left, _ = report_module.consolidation([found]).axes  # type: ignore[attr-defined]
    assert heights(left, 0).sum() == 2


def test_saes_of_which_nothing_fires_and_more_than_there_are_colors_have_pictures() -> None:
    silent = report(on_text=on_text((0, 0), n_pairs=0))
    assert report_module.firing_frequencies([silent]).startswith("<svg")
    assert report_module.consolidation([silent]).startswith("<svg")
    many = [report(str(number)) for number in range(len(COLORS) + 1)]
    assert f"{len(COLORS)}</text>" in report_module.firing_frequencies(many)
    assert report_html(*many).count('<th class="sae-0">') == 2 * 4
