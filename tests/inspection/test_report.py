"""Tables and report show what was found, and load nothing."""

import re
from io import StringIO

import pytest
import torch
from rich.console import Console

from sae_lens_c2r.inspection.contexts import Latent
from sae_lens_c2r.inspection.findings import Finding
from sae_lens_c2r.inspection.firing_together import HEADINGS_TOGETHER, cells_together
from sae_lens_c2r.inspection.latents import LatentOnText
from sae_lens_c2r.inspection.measures import Inspection
from sae_lens_c2r.inspection.report import (
    HEADINGS,
    HEADINGS_ON_TEXT,
    cells_of_weights,
    cells_on_text,
    report_html,
    terminal_tables,
)
from tests.inspection.planted import behavior, inspection


def changed(**changes: object) -> Inspection:
    return Inspection(**{**vars(inspection()), **changes})  # type: ignore[arg-type]


def printed(findings: list[Finding], width: int = 80) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(*terminal_tables(findings), sep="\n")
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_row_of_weights_has_a_cell_for_each_heading() -> None:
    found = changed(
        architecture="jumprelu",
        d_sae=65536,
        d_in=2304,
        composition=0.12345,
        chance_composition=0.2,
        pairs=[7, 1234],
    )
    cells = cells_of_weights(found)
    assert cells == ["jumprelu", "65,536", "2,304", "0.123", "0.200", "7", "1,234"]
    assert len(cells) == len(HEADINGS)


def test_a_row_on_text_has_a_cell_for_each_heading() -> None:
    cells = cells_on_text(behavior())
    # Alpha is above the threshold in two of the three pairs.
    assert cells == ["0.812", "1.2", "1", "3", "0.667", "4.00"]
    assert len(cells) == len(HEADINGS_ON_TEXT)


def test_a_row_of_firing_together_has_a_cell_for_each_heading() -> None:
    cells = cells_together(behavior().co_firing)
    assert cells == ["0.250", "0.062", "1,234", "56", "7"]
    assert len(cells) == len(HEADINGS_TOGETHER)


def test_without_absorption_pairs_there_is_nothing_to_average() -> None:
    assert cells_on_text(behavior(n_pairs=0))[3:] == ["0", "-", "-"]


def test_the_tables_on_text_are_of_the_saes_that_were_observed() -> None:
    weights_alone = [Finding(inspection("a")), Finding(inspection("b"))]
    assert len(terminal_tables(weights_alone)) == 1
    one_observed = [Finding(inspection("a")), Finding(inspection("b"), behavior())]
    assert [table.row_count for table in terminal_tables(one_observed)] == [2, 1, 1]


def test_the_tables_fit_a_terminal_of_80_columns() -> None:
    name = "saes/layer_12/width_64k/batchtopk_c2r_k80"
    shown = printed([Finding(inspection(name), behavior())])
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert shown.count(f" {name} ") == len(
        terminal_tables([Finding(inspection(name), behavior())])
    )
    assert "…" not in shown
    for cell in ("composition", "explained", "standard", "0.812", "> 0.9", "Jaccard", "1,234"):
        assert cell in shown


def test_a_name_is_shown_as_it_is() -> None:
    assert "saes/[k=3]" in printed([Finding(inspection("saes/[k=3]"))], width=120)


def test_the_report_of_weights_has_one_picture_and_the_numbers() -> None:
    html = report_html([Finding(inspection("<a>"))])
    assert html.count("<svg") == 1
    assert "<tr><th>&lt;a&gt;</th><td>standard</td><td>6</td><td>6</td>" in html
    assert "<h1>SAEs, inspected</h1>" in html
    assert "How often they fire" not in html
    assert re.search(r"Made by sae-lens-c2r inspect, with sae-lens-c2r \d.*torch \d", html)


def test_the_report_on_text_has_the_pairs_in_context() -> None:
    html = report_html([Finding(inspection("a"), behavior())])
    assert html.count("<svg") == 3
    assert "<td>0.812</td><td>1.2</td>" in html
    assert "<th>a</th><td>0.250</td><td>0.062</td><td>1,234</td><td>56</td><td>7</td>" in html
    assert "The most redundant pairs of a" in html
    assert "cosine <b>0.93</b>, 4 and 3 tokens of 10, both on 2, Jaccard <b>0.40</b>" in html
    assert "<h3>latent 11</h3>" in html
    assert "the word <mark>&lt;b&gt;</mark> before" in html
    assert "fires on no token" in html  # latent 12


def test_the_report_says_where_there_are_no_pairs() -> None:
    html = report_html([Finding(inspection("a"), behavior(pairs=[]))])
    assert "There are no two alike latents that both fire." in html


@pytest.mark.parametrize(
    ("n_pairs", "said"), [(0, "All pairs of latents"), (3, ": 3. 8 would"), (8, "The 8 most")]
)
def test_the_report_says_why_it_shows_so_many_pairs(n_pairs: int, said: str) -> None:
    pairs = behavior().pairs * n_pairs
    html = report_html([Finding(inspection("a"), behavior(pairs=pairs))])
    assert said in html
    assert "with a cosine of at least 0.3, each of which fires on at least 6 tokens" in html


def test_the_report_names_the_texts_and_the_models() -> None:
    read = {"text": "my.txt", "model": "gpt2"}
    found = [Finding(inspection(name), behavior(), **read) for name in "ab"]
    assert "<p>On text: 10 tokens of my.txt, read by gpt2.</p>" in report_html(found)
    other = Finding(inspection("c"), behavior(), text="my.txt", model="gpt3")
    html = report_html([*found, other])
    assert "<p>On text: 10 tokens of my.txt, read by gpt2 (a, b).</p>" in html
    assert "read by gpt3 (c)." in html
    assert "On text:" not in report_html([Finding(inspection("a"))])


def test_a_latent_that_fires_nowhere_has_no_histogram() -> None:
    silent = LatentOnText(Latent(5, 0, []), torch.tensor([]))
    fires = LatentOnText(Latent(6, 2, []), torch.tensor([0.5, -1.0]))
    html = report_html([Finding(inspection("a"), behavior(), latents=[silent, fires])])
    assert "<b>latent 5</b> fires on 0 tokens of 10" in html
    assert html.count("<svg") == 4


def test_everything_that_is_wide_scrolls() -> None:
    html = report_html([Finding(inspection("a"), behavior())])
    for tag in ("<table>", "<svg"):
        for part in html.split(tag)[:-1]:
            assert part.endswith('<div class="wide">'), part[-80:]


def test_the_report_loads_nothing() -> None:
    html = report_html([Finding(inspection("a"), behavior())])
    assert "<script" not in html
    assert not re.search(r'(src|href)="(?!#)', html.replace("xlink:href", "href"))


def test_the_report_says_what_is_known_of_a_training() -> None:
    known = {"model_name": "gpt2", "hook_name": None, "context_size": 0, "secret": "x"}
    html = report_html([Finding(changed(trained_as="topk_c2r", metadata=known))])
    assert "<dt>trained as</dt><dd>topk_c2r</dd>" in html
    assert "<dt>model_name</dt><dd>gpt2</dd>" in html
    assert "<dt>context_size</dt><dd>0</dd>" in html
    assert "hook_name" not in html
    assert "secret" not in html
    assert "<dd>not recorded</dd>" in report_html([Finding(changed(trained_as=None))])


@pytest.mark.parametrize(
    ("norms", "shown"), [([1.0, 2.5], "1 to 2.5<"), ([0.0, 1], "1 of them 0")]
)
def test_the_report_says_how_long_the_decoder_rows_are(norms: list[float], shown: str) -> None:
    assert shown in report_html([Finding(changed(decoder_norms=torch.tensor(norms)))])
