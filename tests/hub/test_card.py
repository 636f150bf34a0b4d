"""A card says what was measured, and nothing else."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard
from jinja2 import Environment
from pydantic import ValidationError

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.evaluation.gathered import EvaluationOfSAE
from sae_lens_c2r.hub.card.content import Content
from sae_lens_c2r.hub.card.facts import Evaluation, Facts, SAEFacts, read_facts
from sae_lens_c2r.hub.card.pictures import pictures
from sae_lens_c2r.hub.card.readme import Readme
from sae_lens_c2r.hub.card.render import CARDS, TEMPLATE, render, render_planned
from sae_lens_c2r.hub.folder import write_content
from sae_lens_c2r.hub.local.sae_facts import facts_of
from sae_lens_c2r.hub.names import FACTS
from sae_lens_c2r.releases.files import shipped_releases
from tests.hub.server import LoopbackHub

RENDERED = sorted(path.parent for path in CARDS.glob(f"*/{FACTS}"))
COUNTS = {f"max_cosines_from_{i / 50:.2f}": float(i) for i in range(50)}


def sae(**changes: Any) -> SAEFacts:
    weights = {"composition": 0.25, "chance_composition": 0.125, "pairs_above_0.9": 3.0}
    quality = {"reconstruction_quality.explained_variance": 0.8125, "sparsity.l0": 31.96}
    together = {"highest_jaccard": 0.375, "chance": 0.0625, "pairs_above_0.5": 1234.0}
    quality |= {f"co_firing.{name}": value for name, value in together.items()}
    return SAEFacts(
        weights_sha256="0" * 64,
        architecture="jumprelu",
        d_in=8,
        d_sae=80,
        evaluations={
            "weights": Evaluation(metrics={**weights, **COUNTS}),
            "sae_lens": Evaluation(metrics=quality, model="gpt2", settings={"n": 3}),
        },
    ).model_copy(update=changes)


def facts(**saes: SAEFacts) -> Facts:
    return Facts(repo_id="me/saes", saes=saes or {"a": sae()})


def test_the_table_has_what_was_measured() -> None:
    card = render(facts(a=sae(), b=sae(evaluations={})))
    head = (
        "| SAE | explained variance (SAELens) ↑ | L0 (SAELens) | composition ↓ | co-firing ↓ |"
    )
    assert f"{head} pairs > 0.9 ↓ | co-firing by chance | co-firing pairs > 0.5 ↓ |" in card
    assert "| `a` | 0.812 | 32.0 | 0.250 | 0.375 | 3 | 0.062 | 1,234 |" in card
    assert "| `b` |  |  |  |  |  |  |  |" in card
    assert card.count("Co-firing is the mean") == 1
    assert "SAELens's `run_evals` with gpt2" in card
    assert "about 0.125 for random directions" in card


def test_nothing_is_said_that_was_not_measured() -> None:
    card = render(facts(a=sae(evaluations={})))
    assert "## Measurements" not in card
    assert "model-index" not in card
    assert not re.search(r"\d\.\d", card)


def numbers_of(template: str) -> list[str]:
    """The decimal numbers that stand in a template, and are not given to it."""
    parts = Environment().lex(template)
    typed = [source for _, kind, source in parts if kind in ("data", "float", "string")]
    return [number for source in typed for number in re.findall(r"\d+\.\d+", source)]


@pytest.mark.parametrize("typed", ["| `a` | 0.99 |", "It explains 0.99.", "{{ 0.99 }}"])
def test_the_template_has_no_number_of_its_own(typed: str) -> None:
    """All numbers of a card are given to it: one that is typed in would be found."""
    template = (CARDS / TEMPLATE).read_text(encoding="utf-8")
    assert numbers_of(template) == []
    assert numbers_of(template + typed) == ["0.99"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "high", "0.5", True])
def test_only_finite_numbers_are_facts(value: Any) -> None:
    with pytest.raises(ValidationError):
        Evaluation(metrics={"composition": value})
    config = {"architecture": "jumprelu", "d_in": 8, "d_sae": 80}
    if not isinstance(value, float):  # which `evaluation.json` may not have, either
        with pytest.raises(ValidationError, match="composition"):
            EvaluationOfSAE(metrics={"composition": value})
        return
    measured = EvaluationOfSAE(metrics={"composition": value, "x": 1.0})
    with pytest.raises(UserError, match="composition"):
        facts_of(config, weights_sha256="0", record=None, evaluations={"weights": measured})


def test_the_hub_accepts_the_metadata(tmp_path: Path) -> None:
    card = render(
        facts().model_copy(update={"license": "mit", "base_models": ["google/gemma-2-2b"]})
    )
    assert LoopbackHub(tmp_path)._card_errors(card) == []
    data = ModelCard(card).data
    assert (data.library_name, data.license, data.base_model) == (
        "saelens",
        "mit",
        "google/gemma-2-2b",
    )
    values = {result.metric_name: result.metric_value for result in data.eval_results}
    assert values["explained variance (SAELens)"] == 0.8125
    assert all(type(value) is float for value in values.values())
    assert "!!python" not in card


def test_markup_stays_text() -> None:
    odd = "x|y<script>`\n## z"
    evaluation = Evaluation(metrics={"sparsity.l0": 1.0}, model=odd, settings={odd: odd})
    found = sae(trained_as="topk", options={"k": odd}, evaluations={"sae_lens": evaluation})
    card = render(facts(a=found))
    assert "<script>" not in re.sub(r"`[^`\n]*`", "", card.replace("\\`", ""))
    assert "\n## z" not in card
    rows = [line for line in card.splitlines() if line.startswith("| `a`")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [6, 3]


def test_facts_are_read_as_they_were_written() -> None:
    known = facts(a=sae(), b=sae())
    assert read_facts(known.to_json()) == known


def test_later_facts_count_and_measurements_of_the_same_weights_stay() -> None:
    first = facts(a=sae(), b=sae())
    later = facts(a=sae(evaluations={}), c=sae(), b=sae(weights_sha256="1", evaluations={}))
    joined = first.joined(later)
    assert list(joined.saes) == ["a", "b", "c"]
    assert joined.saes["a"].evaluations == sae().evaluations
    assert joined.saes["b"].evaluations == {}


def test_pictures_are_of_the_numbers_and_always_the_same() -> None:
    two = facts(a=sae(), b=sae(trained_as="topk"))
    assert set(pictures(two)) == {"max_cosines.png", "trade_off.png"}
    assert pictures(two) == pictures(two)
    assert set(pictures(facts())) == {"max_cosines.png"}
    assert not pictures(facts(a=sae(evaluations={})))


@pytest.mark.parametrize("release", shipped_releases(), ids=lambda release: release.name)
def test_the_card_of_every_release_is_rendered(release: Any) -> None:
    path = CARDS / f"{release.name}.md"
    if release.status == "published":
        assert (CARDS / release.name / FACTS).is_file()
        return
    card = path.read_text(encoding="utf-8")
    assert card == render_planned(release), f"sae-lens-c2r card {release.name} --out {path}"
    body = Readme.read(card).body
    assert "**Planned.**" in body
    assert "## Measurements" not in body
    assert "model-index" not in card


@pytest.mark.parametrize("folder", RENDERED, ids=lambda folder: folder.name)
def test_rendered_cards_are_of_their_facts(folder: Path, tmp_path: Path) -> None:
    """What is in the repository is what anybody renders of the facts beside it."""
    known = read_facts((folder / FACTS).read_bytes())
    write_content(Content(known, pictures(known)), tmp_path)
    for name in ("README.md", FACTS):
        assert (tmp_path / name).read_text() == (folder / name).read_text()
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn == {path.name for path in (folder / "figures").iterdir()}


def test_the_demos_card_is_there() -> None:
    assert CARDS / "demo" in RENDERED
    saes = json.loads((CARDS / "demo" / FACTS).read_text())["saes"]
    assert set(saes) == {"batchtopk", "batchtopk_c2r"}
    front = Readme.read((CARDS / "demo" / "README.md").read_text()).front
    assert len(yaml.safe_load(front)["model-index"]) == 2


@pytest.mark.parametrize("release", shipped_releases(), ids=lambda release: release.name)
def test_cards_say_where_the_paper_and_its_authors_code_are(release: Any) -> None:
    card = render_planned(release)
    assert "https://arxiv.org/abs/2606.30609" in card
    assert "https://github.com/hr-jin/Cross-sample-Consistency-Regularization" in card


def test_the_readme_and_the_cards_cite_alike() -> None:
    citation = (CARDS / "citations.bib").read_text(encoding="utf-8")
    assert citation in (CARDS.parent / "README.md").read_text(encoding="utf-8")
