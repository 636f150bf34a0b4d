"""Tables, pictures and the report show what was measured, and load nothing."""

import re
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from sae_lens.saes.sae import SAEMetadata

from sae_lens_c2r.inspection import report as report_module
from sae_lens_c2r.inspection.comparison import Comparison, MatchedPair
from sae_lens_c2r.inspection.contexts import Pair
from sae_lens_c2r.inspection.measures import SAEReport
from sae_lens_c2r.inspection.report import tables_of
from sae_lens_c2r.reporting.figures import COLORS
from tests.inspection.planted import latent, on_text, report, weights

TWO = range(2)
ALIKE = Pair(0.93, (latent(11, TWO, "<script>alert(1)</script>"), latent(12, TWO, "two")))
APART = Pair(0.04, (latent(21, TWO, *"ab"), latent(22, TWO)))
ONE = Pair(1.0, (latent(21, TWO, *"ab"), latent(21, TWO, *"ab")))


def comparison(*matches: Pair) -> Comparison:
    kinds = ("merged", "apart_and_firing_together", "apart", "still_alike", "without_a_match")
    numbers = {"pairs": 2, **dict.fromkeys(kinds, 1)}
    shown = [MatchedPair(ALIKE, (0.71, 0.65), each) for each in matches]
    found = {"redundant_pairs": numbers, "matched_latents": {"latents": 0}}
    return Comparison("a", "b", found, shown)


def report_html(*reports: SAEReport, comparisons: Any = (), **options: Any) -> str:
    return report_module.report_html(reports, comparisons, made_by="a command", **options)


def test_every_table_has_the_columns_that_were_measured() -> None:
    large = weights("a")
    counts = {"pairs_above_0.9": 7, "pairs_above_0.7": 1234}
    large.numbers.update(composition=0.12345, chance_composition=0.2, **counts)
    [table] = tables_of([large]).values()
    assert table.rows == [["a", "standard", "6", "6", "0.123", "0.200", "7", "1,234"]]
    assert len(table.metrics) == len(table.rows[0]) - 1
    _, *on_texts = tables_of([large, report("b")]).values()
    assert [table.rows for table in on_texts] == [
        [["b", "0.812", "1.2", "0.250", "0.346", "0.123"]],
        [["b", "0.250", "0.062", "1,234", "56", "7"]],
        [["b", "3", "0.667", "4.00"]],
    ]
    # Without absorption pairs there is nothing to average.
    assert tables_of([report(on_text=on_text(n_pairs=0))])["absorption"].rows == [["a", "0"]]


def test_the_report_of_weights_has_one_picture_and_what_is_known_of_the_sae() -> None:
    known = weights("<a>", decoder_norms=torch.tensor([0.0, 2.5]))
    known.numbers["zero_decoder_rows"] = 1
    assert "<dt>trained as</dt><dd>not recorded</dd>" in report_html(known)
    known.config.metadata = SAEMetadata(training_architecture="topk_c2r", secret="x")
    html = report_html(known)
    assert html.count("<svg") == 1
    assert "&lt;a&gt;</th><td>standard</td><td>6</td><td>6</td>" in html
    assert "<dt>trained as</dt><dd>topk_c2r</dd>" in html
    assert "0 to 2.5; 1 of them 0<" in html
    assert not any(part in html for part in ("How often latents fire", "hook_name", "secret"))


def test_the_report_on_text_has_the_pairs_in_context() -> None:
    html = report_html(report("a"))
    assert html.count("<svg") == 2
    for table in tables_of([report("a")]).values():
        assert "".join(f"<td>{cell}</td>" for cell in table.rows[0][1:]) in html
    for part in (
        "<dd>10 tokens of my.txt, read by gpt2</dd>",
        "cosine <b>0.93</b>, fire on 4 and 3 of 10 tokens, together on 2, Jaccard <b>0.40</b>",
        "the word <mark>&lt;b&gt;</mark> before",
        "fires on no token",  # latent 12
    ):
        assert part in html
    nothing = report_html(report("a", on_text=on_text(pairs=[])))
    assert "No two latents that fire are alike." in nothing


def test_a_comparison_shows_the_latents_that_match_and_loads_nothing() -> None:
    before, after = report("a", on_text=on_text(pairs=[ALIKE, ALIKE])), report("b")
    html = report_html(before, after, comparisons=[comparison(APART, ONE)])
    for part in (
        "two latents of cosine <b>0.04</b>, Jaccard <b>1.00</b>: apart and firing",
        "one latent: merged</p>",
        "latent 22, cosine 0.65 with the latent above",
        "&lt;script&gt;alert(1)",
    ):
        assert part in html
    assert "<script" not in html
    assert not re.search(r'(src|href)="(?!#)', html.replace("xlink:href", "href"))
    for tag in ("<table>", "<svg"):  # whatever is wide scrolls
        for part in html.split(tag)[:-1]:
            assert part.endswith('<div class="wide">'), part[-80:]


def heights(axes: Axes, number: int) -> np.ndarray:
    """Return the heights of a distribution's bins."""
    return np.asarray(axes.patches[number].get_xy())[1::2, 1]


def test_frequencies_are_of_the_latents_that_fire() -> None:
    reports = [report("a", on_text=on_text((10, 1, 0, 1))), weights("c")]
    reports.append(report("b", on_text=on_text((0, 0, 0, 5))))
    (axes,) = report_module.firing_frequencies(reports).axes
    drawn = {to_hex(patch.get_edgecolor()) for patch in axes.patches}
    assert drawn == {COLORS[0], COLORS[2]}  # as in the other pictures
    totals = sorted(heights(axes, number).sum() for number in range(2))
    assert totals == [1, 3], "dead latents are drawn, or live ones are not"


def test_saes_of_which_nothing_fires_and_more_than_there_are_colors_have_pictures() -> None:
    silent = report(on_text=on_text((0, 0), n_pairs=0))
    assert report_html(silent).count("<svg") == 2
    html = report_html(*(report(str(number)) for number in range(len(COLORS) + 1)))
    assert html.count('<th class="sae-0">') == 2 * 4
