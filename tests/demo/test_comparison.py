"""The table and the report show what they are given, and load nothing."""

import json
import re
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

from sae_lens_c2r.demo.comparison import (
    HEADINGS,
    ComparedSAE,
    comparison_html,
    comparison_tables,
    results,
)
from sae_lens_c2r.demo.counterparts import Counterpart, PairWithCounterparts
from sae_lens_c2r.demo.curves import History
from sae_lens_c2r.demo.options import PLAIN, REGULARIZED, DemoOptions
from sae_lens_c2r.demo.twins import Twins
from sae_lens_c2r.inspection.behavior import Reconstruction
from sae_lens_c2r.inspection.contexts import Latent, Pair, TokenInContext
from sae_lens_c2r.inspection.measures import Inspection
from tests.architectures.training import make_sae
from tests.inspection.planted import firing, inspection


def measured(name: str, **changes: object) -> ComparedSAE:
    numbers = {"composition": 0.4321, "chance_composition": 0.1862, "pairs": [14, 1382]}
    found = Inspection(**{**vars(inspection(name)), **numbers, **changes})  # type: ignore[arg-type]
    held_out = Reconstruction(0.8123, firing([0] * 7 + [160] * 9 + [158], 50))
    history = History(
        make_sae("topk_c2r"), [0, 10], [0.1, 0.8], [0.2, 0.4], seconds=2.0, tokens=6913
    )
    return ComparedSAE(found, held_out, history)


BOTH = {PLAIN: measured(PLAIN), REGULARIZED: measured(REGULARIZED, composition=0.225)}


def latent(index: int, *tokens: str) -> Latent:
    shown = [TokenInContext("before", token, "after", 1.25) for token in tokens]
    return Latent(index, len(tokens), shown)


PAIR = PairWithCounterparts(
    Pair(0.93, (latent(11, "<script>alert(1)</script>"), latent(12, "two")), 1),
    (Counterpart(0.71, latent(21, "three")), Counterpart(0.65, latent(22))),
    Pair(0.04, (latent(21, *"ab"), latent(22, *"ab")), 2),
)
TWINS = Twins(
    ["merged", "apart and firing together", "apart", "apart"],
    before=torch.tensor([0.9, 0.7, 0.6, 0.8]),
    after=torch.tensor([1.0, 0.8, 0.3, 0.1]),
)


def render(*pairs: PairWithCounterparts) -> str:
    return comparison_html(BOTH, TWINS, list(pairs), DemoOptions(Path("out"), seed=7))


def printed(width: int = 80) -> str:
    console = Console(width=width, file=StringIO())
    console.print(*comparison_tables(BOTH), sep="\n")
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_numbers_are_those_that_were_measured() -> None:
    assert BOTH[PLAIN].metrics() == {
        "explained_variance": 0.8123,
        "l0": pytest.approx(31.96),
        "composition": 0.4321,
        "chance_composition": 0.1862,
        "pairs_above_0_9": 14,
        "pairs_above_0_7": 1382,
        "dead_latents": 7,
        "tokens_per_second": 3456.5,
        "co_firing": {
            "highest_jaccard": 0.25,
            "chance": 0.0625,
            "pairs_above_0.5": 1234,
            "pairs_above_0.7": 56,
            "pairs_above_0.9": 7,
        },
    }


def test_the_results_are_of_json_and_say_with_what_they_were_made() -> None:
    found = json.loads(json.dumps(results(BOTH, TWINS, DemoOptions(Path("out"), tokens=4096))))
    assert found["settings"]["tokens"] == 4096
    assert found["settings"]["out"] == "out"
    assert found["held_out"][REGULARIZED]["composition"] == 0.225
    assert found["versions"]["torch"] == torch.__version__
    assert found["twins"] == TWINS.summary()


def test_a_row_has_a_cell_for_each_heading() -> None:
    cells = BOTH[PLAIN].cells()
    assert cells == ["0.812", "32.0", "0.432", "14", "1,382", "7", "3,456"]
    assert len(cells) == len(HEADINGS)


def test_the_table_fits_a_terminal_of_80_columns() -> None:
    shown = printed()
    assert "…" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    for cell in (
        "Measured on held-out text",
        "batchtopk_c2r",
        "explained",
        "> 0.9",
        "3,456",
    ):
        assert cell in shown
    rows = [line.split() for line in shown.splitlines() if line.strip().startswith("batchtopk")]
    assert [row[3] for row in rows[:2]] == ["0.432", "0.225"]
    assert [row[1:] for row in rows[2:]] == [["0.250", "0.062", "1,234", "56", "7"]] * 2


def test_the_note_says_the_chance_level() -> None:
    assert "0.186" in printed()
    assert "chance level at this size is 0.186" in render()


def test_the_report_has_the_table_the_pictures_and_the_provenance() -> None:
    html = render()
    for cell in BOTH[PLAIN].cells():
        assert f"<td>{cell}</td>" in html
    for cell in ("0.250", "0.062", "1,234", "56", "7"):
        assert html.count(f"<td>{cell}</td>") == 2 + (cell == "7") * 2  # dead latents
    assert html.count("<svg") == 2
    assert "<h1>What C2R did to an SAE</h1>" in html
    assert f'<th class="plain">{PLAIN}</th>' in html
    assert f'<th class="regularized">{REGULARIZED}</th>' in html
    assert "sae-lens-c2r demo --tokens 400000 --d-sae 4096 --k 32" in html
    assert "--c2r-coefficient 5 --seed 7, with Python 3." in html
    assert 'SAE.load_from_disk("out/batchtopk_c2r")' in html.replace("&#34;", '"')


def test_the_report_has_the_pairs_and_their_counterparts() -> None:
    html = render(PAIR)
    for shown in ("latent 11", "latent 12", "latent 21, cosine 0.71", "latent 22, cosine 0.65"):
        assert shown in html
    assert "cosine <b>0.93</b>, 1 and\n1 tokens, both on 1, Jaccard <b>1.00</b>" in html
    assert "two latents of cosine <b>0.04</b>, Jaccard <b>1.00</b>" in html
    assert "Jaccard <b>1.00</b>: apart and firing together</span>" in html
    assert "before <mark>three</mark> after" in html
    assert "fires on no token" in html


def test_the_report_says_how_many_pairs_were_merged() -> None:
    assert "Of 4 pairs of latents of batchtopk with a cosine above 0.7" in render()


def test_text_is_escaped_and_nothing_is_loaded() -> None:
    html = render(PAIR)
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert not re.search(r'(src|href)="(?!#)', html.replace("xlink:href", "href"))


def test_the_report_says_so_where_there_are_no_pairs() -> None:
    assert "There are no two alike latents" in render()
    assert "There are no two alike latents" not in render(PAIR)


def test_one_counterpart_of_both_is_called_one_latent() -> None:
    same = Counterpart(0.7, latent(21, "three"))
    itself = Pair(1.0, (same.latent, same.latent), 1)
    html = render(PairWithCounterparts(PAIR.pair, (same, same), itself))
    assert "one latent: merged</span>" in html
    assert "one latent:" not in render(PAIR)
