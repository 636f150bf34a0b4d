"""Reports share a look, and parts that are escaped."""

from types import SimpleNamespace

import pytest
from jinja2 import DictLoader, Environment, StrictUndefined, UndefinedError

from sae_lens_c2r.inspection.contexts import Latent, TokenInContext
from sae_lens_c2r.reporting import html
from sae_lens_c2r.reporting.html import render

EXTENDING = (
    '{% extends "reporting/base.html" %}'
    '{% from "reporting/parts.html" import table, tokens, how_alike %}'
    "{% block title %}A <title>{% endblock %}"
    "{% block body %}BODY{% endblock %}"
)


@pytest.fixture
def templates(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Templates beside those of the package."""
    own: dict[str, str] = {}
    read = html._read
    monkeypatch.setattr(html, "_read", lambda name: own.get(name) or read(name))
    return own


def body(templates: dict[str, str], of: str, **values: object) -> str:
    templates["t.html"] = EXTENDING.replace("BODY", of)
    return render("t.html", **values)


def test_a_report_has_the_style_the_title_and_the_body(templates: dict[str, str]) -> None:
    shown = body(templates, "<p>{{ x }}</p>", x="<b>")
    assert shown.startswith("<!doctype html>")
    assert "font: 16px/1.5 system-ui" in shown
    assert "<h1>A <title></h1>" in shown
    assert "<p>&lt;b&gt;</p>" in shown


def test_a_value_that_is_not_given_is_an_error(templates: dict[str, str]) -> None:
    with pytest.raises(UndefinedError, match="x"):
        body(templates, "{{ x }}")


def test_a_table_has_its_cells_and_its_note_escaped(templates: dict[str, str]) -> None:
    shown = body(
        templates,
        "{{ table('on', ['h>'], [('<a>', ['1']), ('b', ['2'])], 'a & b', {'b': 'plain'}) }}",
    )
    assert "<tr><th>on</th><th>h&gt;</th></tr>" in shown
    assert "<tr><th>&lt;a&gt;</th><td>1</td></tr>" in shown
    assert '<tr><th class="plain">b</th><td>2</td></tr>' in shown
    assert '<p class="note">a &amp; b</p>' in shown


def test_the_tokens_of_a_latent_are_marked_in_their_context(templates: dict[str, str]) -> None:
    latent = Latent(3, 1, [TokenInContext("to be", "<or>", "not", 1.26)])
    shown = body(templates, "{{ tokens(latent) }}", latent=latent)
    assert "to be <mark>&lt;or&gt;</mark> not" in shown
    assert '<span class="strength">1.3</span>' in shown
    silent = body(templates, "{{ tokens(latent) }}", latent=SimpleNamespace(top_tokens=[]))
    assert "fires on no token" in silent


def test_a_picture_stands_in_the_report_as_it_is(templates: dict[str, str]) -> None:
    assert "<svg>x</svg>" in body(templates, "{{ how_alike('<svg>x</svg>') }}")


def test_the_templates_are_read_from_the_package() -> None:
    names = ("reporting/base.html", "reporting/parts.html", "inspection/report.html")
    environment = Environment(
        loader=DictLoader({name: html._read(name) for name in names}), undefined=StrictUndefined
    )
    assert environment.get_template("inspection/report.html")
