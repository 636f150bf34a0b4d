"""A repository's README.md keeps every word that is not ours."""

import re
import string
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard
from hypothesis import assume, given
from hypothesis import strategies as st

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.card.readme import _LISTS, BEGIN, END, Readme, merged, set_metadata

CARD = f"""---
library_name: saelens
license: mit
tags:
- sae
model-index:
- name: a
  results:
  - task: {{type: feature-extraction, name: sparse autoencoder}}
    dataset: {{name: x, type: x}}
    metrics:
    - {{type: composition, value: 0.5}}
---

# saes

{BEGIN}

Ours.

{END}
"""
OURS = CARD[CARD.index(BEGIN) : CARD.index(END) + len(END)]
PROSE = st.text(string.printable, max_size=60) | st.sampled_from(
    ["# Mine\n", "---\n", "| `a` | 0.5 |\n", "```python\nx = 1\n```\n", "<!-- note -->", "\r\n"]
)
KEYS = st.text(string.ascii_lowercase + "_", min_size=1, max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(string.printable, max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def metadata(content: str) -> dict[str, Any]:
    return Readme.read(content).metadata


def test_where_there_is_none_it_is_the_card() -> None:
    assert merged(None, CARD) == CARD


@given(before=PROSE, after=PROSE)
def test_what_stands_around_our_part_stays(before: str, after: str) -> None:
    """Whatever the words, they are there as they were; merged twice is merged once."""
    content = f"---\nlicense: mit\n---\n{before}{OURS}{after}"
    once = merged(content, CARD)
    unified = once.replace("\r\n", "\n")
    assert (before + OURS + after).replace("\r\n", "\n") in unified
    assert merged(once, CARD) == once


@given(body=PROSE)
def test_a_readme_without_our_part_gets_it_at_its_end(body: str) -> None:
    assume(not re.match(r"\s*---", body))
    once = merged(body, CARD)
    assert body.rstrip("\r\n") in once
    assert OURS in once.replace("\r\n", "\n")
    assert metadata(once)["license"] == "mit"
    assert merged(once, CARD) == once


def listed(value: Any) -> list[Any]:
    """What stands where a list should: nothing, or one thing, may as well."""
    return value if isinstance(value, list) else [value] if value else []


@given(known=st.dictionaries(KEYS | st.just("tags"), VALUES, max_size=4))
def test_metadata_that_is_there_stays(known: dict[str, Any]) -> None:
    """Every key that was there keeps its value; only lists and results are joined."""
    front = yaml.safe_dump(known, sort_keys=False)
    assume(yaml.safe_load(front) == known)
    once = merged(f"---\n{front}---\n# Mine\n", CARD)
    found = metadata(once)
    lists = {key: known[key] for key in known.keys() & _LISTS}
    assert {key: found[key] for key in known} | lists == known
    for key, value in lists.items():
        assert [each for each in listed(found[key]) if each in listed(value)] == listed(value)
    assert found["model-index"] == metadata(CARD)["model-index"]
    if known and not lists:
        assert front.strip() in once or front.startswith("{")


ODD = {
    "comments": "# first\nlicense: apache-2.0 # why\n# last\n",
    "quoted keys": "'license': apache-2.0\n\"model-index\": []\n",
    "one line in braces": "{license: apache-2.0, mine: [1, 2]}\n",
    "anchors": "license: &l apache-2.0\nmine: *l\n",
    "block scalars": "license: apache-2.0\nmine: |\n  model-index:\n  - name: a\n",
    "a list at the margin": "license: apache-2.0\nmodel-index:\n- name: b\nx: 1\n",
    "windows": "license: apache-2.0\r\nmine: 1\r\n",
    "a date": "license: apache-2.0\nmine: 2026-01-01\n",
    "unicode": "license: apache-2.0\nmine: äöü 漢字\n",
    "no end of line": "license: apache-2.0\nmine: 1",
}


@pytest.mark.parametrize("front", ODD.values(), ids=ODD)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_odd_yaml_survives(front: str, mark: str) -> None:
    newline = "\r\n" if "\r\n" in front else "\n"
    content = f"{mark}---{newline}{front.rstrip()}{newline}---{newline}# Mine{newline}"
    once = merged(content, CARD)
    assert once.startswith("---")  # the Hub sees no metadata behind such a mark
    known, found = yaml.safe_load(front + "\n"), metadata(once)
    for key in known.keys() - {"model-index"}:
        assert found[key] == known[key]
    others = [entry for entry in known.get("model-index", []) if entry["name"] != "a"]
    assert found["model-index"] == others + metadata(CARD)["model-index"]
    assert found["license"] == "apache-2.0"
    for line in front.splitlines():
        if line.startswith("#") or "#" in line:
            assert line in once
    assert merged(once, CARD) == once
    if newline == "\r\n":
        assert "\n" not in once.replace("\r\n", "")


def test_lists_grow_and_foreign_results_stay() -> None:
    known = """---
tags: [mine]
base_model: org/x
model-index:
- name: a
  results:
  - task: {type: text-generation}
    dataset: {name: y, type: y}
    metrics:
    - {type: mine, value: 1}
---
"""
    card = set_metadata(CARD, {"base_model": "org/z"})
    found = metadata(merged(known, card))
    assert found["tags"] == ["mine", "sae"]
    assert found["base_model"] == ["org/x", "org/z"]
    [entry] = found["model-index"]
    assert [result["task"]["type"] for result in entry["results"]] == [
        "text-generation",
        "feature-extraction",
    ]


def test_the_hubs_client_reads_it() -> None:
    card = ModelCard(merged("---\nlicense: mit\nmine: 1\n---\nText\n", CARD))
    assert card.data.to_dict()["mine"] == 1
    assert card.data.eval_results[0].metric_value == 0.5


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("---\nlicense: [\n---\n", "should have metadata in YAML"),
        ("---\n- a\n---\n", "should have a mapping as metadata"),
        ("---\nd: 2024-13-45\n---\n", "should have metadata in YAML"),
        (f"{BEGIN}\n", "Found 1 and 0"),
        (f"{END}\n{BEGIN}\n", "Found 1 and 1"),
        (f"{BEGIN}{END}{BEGIN}{END}", "Found 2 and 2"),
    ],
)
def test_what_cannot_be_joined_with_is_refused(content: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        merged(content, CARD)


def test_metadata_are_set_in_place() -> None:
    content = "---\na: 1\nb:\n- 2\n# c\nd: 3\n---\ntext\n"
    assert set_metadata(content, {"b": 4}) == "---\na: 1\n# c\nd: 3\nb: 4\n---\ntext\n"
