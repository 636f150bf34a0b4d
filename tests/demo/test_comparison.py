"""The report shows what it is given, and loads nothing."""

import re
from io import StringIO

from rich.console import Console

from sae_lens_c2r.demo.contexts import Counterpart, PairInContext
from sae_lens_c2r.demo.evaluation import Metrics
from sae_lens_c2r.demo.figures import training_curves
from sae_lens_c2r.demo.report import metrics_table, report_html, terminal_table
from sae_lens_c2r.demo.settings import PLAIN, REGULARIZED
from sae_lens_c2r.demo.training import History
from sae_lens_c2r.inspection.contexts import Latent, TokenInContext
from sae_lens_c2r.reporting.figures import Distribution, max_cosine_figure, svg

METRICS = Metrics(
    explained_variance=0.8123,
    l0=31.96,
    composition=0.4321,
    chance_composition=0.1862,
    pairs_above_0_9=14,
    pairs_above_0_7=1382,
    dead_latents=7,
    tokens_per_second=3456.7,
)


def latent(index: int, *tokens: str) -> Latent:
    shown = [TokenInContext("before", token, "after", 1.25) for token in tokens]
    return Latent(index, len(tokens), shown)


def render(pairs: list[PairInContext]) -> str:
    histories = {
        name: History(steps=[0, 10], explained_variance=[0.1, 0.8], composition=[0.2, 0.4])
        for name in (PLAIN, REGULARIZED)
    }
    return report_html(
        metrics_table({PLAIN: METRICS, REGULARIZED: METRICS}),
        histogram=svg(max_cosine_figure([Distribution(PLAIN, "#000", [1, 2])], [0.2])),
        curves=training_curves(histories),
        pairs=pairs,
        folder="out/batchtopk_c2r",
        provenance="Made by a test.",
    )


PAIR = PairInContext(
    cosine=0.93,
    latents=(latent(11, "<script>alert(1)</script>"), latent(12, "two")),
    times_fired_together=3,
    counterparts=(Counterpart(0.71, latent(21, "three")), Counterpart(0.65, latent(22))),
    counterpart_cosine=0.04,
)


def test_shows_the_table_and_the_pairs() -> None:
    html = render([PAIR])
    for shown in ("0.812", "32.0", "0.432", "14", "1,382", "3,457"):
        assert f"<td>{shown}</td>" in html
    assert "chance level at this size is 0.186" in html
    for shown in ("latent 11", "latent 12", "latent 21, cosine 0.71", "<b>0.04</b>", "three"):
        assert shown in html
    assert "fires on no held-out token" in html
    assert 'SAE.load_from_disk("out/batchtopk_c2r")' in html.replace("&#34;", '"')


def test_table_fits_a_terminal_of_80_columns() -> None:
    console = Console(width=80, record=True, file=StringIO())
    console.print(terminal_table(metrics_table({PLAIN: METRICS, REGULARIZED: METRICS})))
    shown = console.export_text()
    assert "…" not in shown
    for cell in ("batchtopk_c2r", "explained", "composition", "> 0.9", "tokens/s", "3,457"):
        assert cell in shown


def test_text_is_escaped_and_nothing_is_loaded() -> None:
    html = render([PAIR])
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert html.count("<svg") == 2
    assert not re.search(r'(src|href)="(?!#)', html.replace("xlink:href", "href"))


def test_says_so_when_there_are_no_pairs() -> None:
    assert "There are no two alike latents" in render([])


def test_one_counterpart_of_both_is_called_one_latent() -> None:
    same = Counterpart(0.7, latent(21, "three"))
    shared = PairInContext(0.9, PAIR.latents, 1, (same, same), 1.0)
    assert "one latent" in render([shared])
    assert "one latent" not in render([PAIR])
