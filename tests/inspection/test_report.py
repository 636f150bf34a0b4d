"""Tables, pictures and the report show what was measured, and load nothing."""

import re
from typing import Any

from sae_lens_c2r.inspection import report as report_module
from sae_lens_c2r.inspection.comparison import Comparison, MatchedPair
from sae_lens_c2r.inspection.contexts import Pair
from sae_lens_c2r.inspection.measures import SAEReport
from sae_lens_c2r.inspection.report import tables_of
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
    assert table.rows == [["a", "standard", "6", "6", "0.123", "0.000", "0.200", "7", "1,234"]]
    assert len(table.metrics) == len(table.rows[0]) - 1
    _, *on_texts = tables_of([large, report("b")]).values()
    assert [table.rows for table in on_texts] == [
        [["b", "0.812", "1.2", "0.250", "0.346", "0.123"]],
        [["b", "0.250", "0.062", "1,234", "56", "7"]],
        [["b", "3", "0.667", "4.00"]],
    ]
    # Without absorption pairs there is nothing to average.
    assert tables_of([report(on_text=on_text(n_pairs=0))])["absorption"].rows == [["a", "0"]]


def test_a_comparison_shows_the_latents_that_match_and_loads_nothing() -> None:
    before, after = report("a", on_text=on_text(pairs=[ALIKE, ALIKE])), report("b")
    html = report_html(before, after, comparisons=[comparison(APART, ONE)])
    for part in (
        "two latents of cosine <b>0.04</b>, Jaccard <b>1.00</b>: apart and firing",
        "one latent: merged</p>",
        "latent 22, cosine 0.65 with the latent above",
        "cosine <b>-0.12</b>, fire on 3 and 3 of 10 tokens, together on 3, Jaccard <b>1.00",
        "latent 14",
        "&lt;script&gt;alert(1)",
    ):
        assert part in html
    assert "<script" not in html
    assert not re.search(r'(src|href)="(?!#)', html.replace("xlink:href", "href"))
