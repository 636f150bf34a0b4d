"""A card says what was measured, and nothing else; whose words stand around it stay."""

import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sae_lens.load_model
import yaml
from huggingface_hub import ModelCard
from huggingface_hub.repocard import RepoCard
from hypothesis import assume, given
from hypothesis import strategies as st
from jinja2 import Environment
from pydantic import ValidationError
from sae_lens import SAE

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.card import (
    BEGIN,
    END,
    LISTS,
    SENTENCES,
    TEMPLATE,
    card_files,
    merge,
    pictures,
    render,
)
from sae_lens_c2r.hub.repo_record import RepoRecord, published
from sae_lens_c2r.models.names import ModelName
from sae_lens_c2r.models.offline import MINILM
from sae_lens_c2r.releases.model import FACTS, README
from sae_lens_c2r.saes.record import Evaluation, SAERecord
from tests.evaluation.planted import small_sae
from tests.hub.server import LoopbackHub
from tests.language_model import D_MODEL, HOOK, tiny_model
from tests.saes.forms import make_form

ROOT = Path(__file__).parents[2]
CARDS = ROOT / "hub_cards"
RENDERED = sorted(path.parent for path in CARDS.glob(f"*/{FACTS}"))
COUNTS = {f"max_cosines_from_{i / 50:.2f}": float(i) for i in range(50)}


def sae(**changes: Any) -> SAERecord:
    weights = {"composition": 0.25, "chance_composition": 0.125, "pairs_above_0.9": 3.0}
    quality = {"explained_variance": 0.8125, "l0": 31.96}
    quality |= {"co_firing": 0.375, "co_firing_chance": 0.0625}
    quality |= {"co_firing_pairs_above_0.5": 1234.0}
    return SAERecord(
        weights_sha256="0" * 64,
        config_sha256="1",
        architecture="jumprelu",
        d_in=8,
        d_sae=80,
        evaluations={
            "weights": Evaluation(metrics={**weights, **COUNTS}),
            "sae_lens": Evaluation(metrics=quality, model="gpt2", settings={"n": 3}),
        },
    ).model_copy(update=changes)


def facts(**saes: SAERecord) -> RepoRecord:
    return RepoRecord(repo_id="me/saes", saes=saes or {"a": sae()})


def test_nothing_is_said_that_was_not_measured() -> None:
    card = render(facts(a=sae(evaluations={})))
    assert "## Measurements" not in card
    assert not re.search(r"\d\.\d", card)
    assert "| `b` |  |  |  |" in render(facts(a=sae(), b=sae(evaluations={})))


def numbers_of(template: str) -> list[str]:
    """The decimal numbers that stand in a template, and are not given to it."""
    parts = Environment().lex(template)
    typed = [source for _, kind, source in parts if kind in ("data", "float", "string")]
    return [number for source in typed for number in re.findall(r"\d+\.\d+", source)]


def test_the_template_has_no_number_of_its_own() -> None:
    """All numbers of a card are given to it: one that is typed in would be found."""
    for name in (TEMPLATE, SENTENCES):
        template = ROOT / "sae_lens_c2r" / "hub" / name
        assert numbers_of(template.read_text(encoding="utf-8")) == []
    typed = "| `a` | 0.99 | It explains 0.99. {{ 0.99 }}"
    assert numbers_of(typed) == ["0.99"] * 3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "high", "0.5", True])
def test_only_finite_numbers_are_facts(value: Any) -> None:
    with pytest.raises(ValidationError, match="composition"):
        Evaluation(metrics={"composition": value})


def test_the_hub_accepts_the_metadata(tmp_path: Path) -> None:
    said = {"license": "mit", "base_models": ["google/gemma-2-2b"]}
    card = card_files(facts().model_copy(update=said))[README].decode()
    assert LoopbackHub(tmp_path)._card_errors(card) == []
    data = ModelCard(card).data
    assert (data.library_name, data.license) == ("saelens", "mit")
    assert data.base_model == "google/gemma-2-2b"
    assert "!!python" not in card


def test_markup_stays_text() -> None:
    odd = "x|y<script>`\n## z"
    evaluation = Evaluation(metrics={"l0": 1.0}, model=odd, settings={odd: odd})
    found = sae(trained_as="topk", options={"k": odd}, evaluations={"sae_lens": evaluation})
    card = render(facts(a=found))
    assert "<script>" not in re.sub(r"`[^`\n]*`", "", card.replace("\\`", ""))
    assert "\n## z" not in card
    rows = [line for line in card.splitlines() if line.startswith("| `a`")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [7, 3, 3]


def test_later_facts_count_and_measurements_of_the_same_weights_stay() -> None:
    first = facts(a=sae(), b=sae())
    later = facts(a=sae(evaluations={}), c=sae(), b=sae(weights_sha256="1", evaluations={}))
    joined = first.joined(later)
    assert list(joined.saes) == ["a", "b", "c"]
    assert joined.saes["a"].evaluations == sae().evaluations
    assert joined.saes["b"].evaluations == {}
    again = RepoRecord.read(joined.to_json())
    assert (again, again.to_json()) == (joined, joined.to_json())


def test_a_corrected_model_takes_the_place_of_the_wrong_one() -> None:
    def of(**models: str) -> RepoRecord:
        saes = {sae_id: sae(model=model) for sae_id, model in models.items()}
        return facts(**saes).model_copy(update={"base_models": sorted({*models.values()})})

    before = card_files(of(a="me/x", b="me/x"))
    corrected = (of(a="me/y"), ["me/x", "me/y"]), (of(a="me/y", b="me/y"), "me/y")
    unnamed = facts(a=sae(), b=sae()), None
    for later, models in (*corrected, unnamed):
        card = card_files(later, before.get)
        assert metadata(card[README].decode()).get("base_model") == models


def test_what_training_counted_is_no_measurement() -> None:
    """SAELens finds no latent dead before the end of its window, whatever they are."""
    record = SAERecord.model_validate(
        {
            "source": {"hub_id": "org/model"},
            "from_disk": [],
            "seconds": 7200.0,
            "trained_together": ["a", "b"],
        }
    )
    names = {"num_dead_features": 7, "model_name": "gpt2", "hook_name": "x"}
    config = {"architecture": "topk", "d_in": 8, "d_sae": 80, "metadata": names}
    found = published(record.with_config(config))
    assert found.evaluations == {}
    card = render(facts(a=found))
    for said in ("2.0 hours for 2 SAEs together", 'model_name = "gpt2"'):
        assert said in card


@pytest.mark.parametrize("kind", ["MiniLM", "a transformer", "no model", "heads"])
def test_the_code_of_a_card_runs(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {
        "MiniLM": (MINILM.hub_id, "AutoModelForCausalLM", "bert.encoder.layer.3", 384),
        "a transformer": ("tiny", None, HOOK, D_MODEL),
        "no model": (None, None, None, 8),
        "heads": ("tiny", None, "blocks.0.attn.hook_z", 8),
    }
    model, model_class, hook_name, d_in = names[kind]
    encoded = {"model": model, "model_class": model_class, "hook_name": hook_name}
    card = render(facts(a=sae(d_in=d_in, d_sae=80, **encoded)))
    loaded = small_sae(d_in=d_in)
    if kind == "heads":  # as SAELens saved them before 6
        loaded = make_form("standard", d_in=d_in, d_sae=80, reshape_activations="hook_z")
    monkeypatch.setattr(SAE, "from_pretrained", lambda *_: loaded)
    load = sae_lens.load_model.load_model

    def load_here(of_class: str, name: str, **options: Any) -> Any:
        if name == "tiny":
            return tiny_model(n_ctx=32)
        return load(of_class, ModelName(name).place(), **options)

    monkeypatch.setattr(sae_lens.load_model, "load_model", load_here)
    [code] = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert card.index("| SAE |") < card.index(code) < card.index("## ")
    values: dict[str, Any] = {}
    exec(code, values)
    assert values["feature_acts"].shape[-1] == 80
    assert values["reconstruction"].shape == values["activations"].shape
    assert "indices" in capsys.readouterr().out


def absorbs(a: float, b: float, **changes: Any) -> SAERecord:
    """An SAE whose letters a and b absorb so much."""
    by_letter = {
        f"by_letter.{score}.{letter}": value
        for score in ("absorption", "full_absorption")
        for letter, value in {"a": a, "b": b}.items()
    }
    numbers = {"full_absorption": (a + b) / 2, "f1_of_probes.a": 0.75, **by_letter, **changes}
    return sae(evaluations={"absorption": Evaluation(metrics=numbers)})


def test_absorption_is_compared_over_letters_of_the_same_probes() -> None:
    plain, less = absorbs(0.5, 0.25), absorbs(0.375, 0.0)
    less = less.model_copy(update={"options": {"c2r_coefficient": 2.0}})
    others = {"other-probes": absorbs(0.1, 0.2, **{"f1_of_probes.a": 0.5}), "none": sae()}
    card = render(facts(less=less, plain=plain, **others))
    # By hand: differences of -1/8 and -1/4, and 12.706 of Student's t with one degree.
    row = "| `less` | -0.188 ± 0.794 | -0.188 ± 0.794 |"
    heading = "| less `plain` | absorption fraction ↓ | full absorption ↓ |"
    assert card.count("± 0.794") == 2
    assert f"{heading}\n| --- | --: | --: |\n{row}\n" in card
    assert "less `" not in render(facts(plain=plain, **others))


def test_pictures_are_of_the_numbers_and_always_the_same() -> None:
    three = facts(a=sae(), b=sae(), c=sae(trained_as="topk"))
    drawn = pictures(three)
    assert set(drawn) == {"figures/max_cosines.png"}
    assert pictures(three) == drawn
    assert not pictures(facts(a=sae(evaluations={})))


@pytest.mark.parametrize("folder", RENDERED, ids=lambda folder: folder.name)
def test_rendered_cards_are_of_their_facts(folder: Path) -> None:
    """What is in the repository is what anybody renders of the facts beside it."""
    rendered = card_files(RepoRecord.read((folder / FACTS).read_bytes()))
    for name in (README, FACTS):
        assert rendered.pop(name) == (folder / name).read_bytes()
    assert rendered.keys() == {
        f"figures/{path.name}" for path in (folder / "figures").iterdir()
    }


def test_a_card_is_of_all_that_a_repository_has() -> None:
    """Joined twice is joined once; of other repositories and deleted SAEs nothing is kept."""
    ours, theirs = facts(a=sae()), facts(b=sae())
    alone = card_files(ours)
    assert card_files(ours, alone.get) == alone
    joined = card_files(ours, card_files(theirs).get)
    assert set(RepoRecord.read(joined[FACTS]).saes) == {"a", "b"}
    assert b"| `b` |" in joined[README]
    deleted = card_files(ours, card_files(theirs).get, there=["c/cfg.json"])
    assert deleted == card_files(ours) == alone


OURS = f"{BEGIN}\n\nOurs.\n\n{END}"
METADATA = {"library_name": "saelens", "license": "mit", "tags": ["sae"]}
PROSE = st.text(string.printable, max_size=60) | st.sampled_from(
    ["# Mine\n", "---\n", "| `a` | 0.5 |\n", "```python\nx = 1\n```\n", "<!-- note -->", "\r\n"]
)
KEYS = st.text(string.ascii_lowercase + "_", min_size=1, max_size=8)
VALUES = st.recursive(
    st.booleans() | st.integers() | st.text(string.printable, max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def metadata(content: str) -> dict[str, Any]:
    return RepoCard(content).data.to_dict()


def merged(content: str, new: dict[str, Any] = METADATA, gone: Sequence[str] = ()) -> str:
    return merge(RepoCard(content), new, OURS, gone)


@given(before=PROSE, after=PROSE)
def test_what_stands_around_our_part_stays(before: str, after: str) -> None:
    """Whatever the words, they are there as they were; merged twice is merged once."""
    once = merged(f"---\nlicense: mit\n---\n{before}{BEGIN} Earlier. {END}{after}")
    assert once.endswith(f"---\n{before}{OURS}{after}")
    assert merged(once) == once


@given(body=PROSE)
def test_a_readme_without_our_part_gets_it_at_its_end(body: str) -> None:
    assume(not re.match(r"\s*---", body))
    once = merged(body)
    assert body.rstrip("\r\n") in once
    assert once.endswith(f"{OURS}\n")
    assert metadata(once) == METADATA
    assert merged(once) == once


def listed(value: Any) -> list[Any]:
    """Return as a list what may be a list, one thing or nothing."""
    return value if isinstance(value, list) else [value] if value else []


@given(known=st.dictionaries(KEYS | st.sampled_from(LISTS), VALUES, max_size=4))
def test_metadata_that_is_there_stays(known: dict[str, Any]) -> None:
    """Every key that was there keeps its value; only lists are joined."""
    front = yaml.safe_dump(known, sort_keys=False)
    assume(yaml.safe_load(front) == known)
    once = merged(f"---\n{front}---\n# Mine\n")
    found = metadata(once)
    lists = {key: known[key] for key in known.keys() & LISTS}
    for key, value in known.items():
        if key not in lists:
            assert found[key] == value
        else:
            kept = [each for each in listed(found.get(key)) if each in listed(value)]
            assert kept == listed(value)
    assert once.endswith(f"# Mine\n\n{OURS}\n")
    assert merged(once) == once


@pytest.mark.parametrize(
    "front",
    [
        "# first\nlicense: apache-2.0 # why\n# last\n",
        "license: apache-2.0\nmodel-index: []",
        "license: apache-2.0\nmodel-index:\n- name: b\n  results: [{mine: 1}]\nx: 1\n",
        "license: apache-2.0\r\nmine: 1\r\n",
        "license: apache-2.0\nmine: 2026-01-01\n",
        "license: apache-2.0\nmine: äöü 漢字\n",
    ],
)
def test_odd_metadata_survive(front: str) -> None:
    newline = "\r\n" if "\r\n" in front else "\n"
    content = f"---{newline}{front.rstrip()}{newline}---{newline}# Mine{newline}"
    known = yaml.safe_load(front)
    # The Hub sees no metadata behind the mark that some editors begin a file with.
    for mark in ("", "\ufeff"):
        readme = {README: (mark + content).encode()}
        once = card_files(facts(), readme.get)[README].decode()
        assert {key: metadata(once)[key] for key in known} == known
        assert once.startswith("---")


def test_lists_grow_but_for_what_is_gone() -> None:
    known = "---\ntags: [mine, {odd: 1}]\nbase_model: org/x\ndatasets: org/old\n---\n"
    found = metadata(merged(known, {**METADATA, "base_model": "org/z"}, ["org/old"]))
    assert found["tags"] == ["mine", {"odd": 1}, "sae"]
    assert found["base_model"] == ["org/x", "org/z"]
    assert "datasets" not in found


@pytest.mark.parametrize("content", [f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}{END}" * 2])
def test_what_cannot_be_joined_with_is_refused(content: str) -> None:
    with pytest.raises(UserError, match=r"README\.md should have"):
        merged(content)


@pytest.mark.parametrize("mark", [BEGIN, END])
def test_a_description_has_no_marks(mark: str) -> None:
    with pytest.raises(UserError, match="no marks"):
        card_files(facts().model_copy(update={"description": f"A {mark} in it."}))
