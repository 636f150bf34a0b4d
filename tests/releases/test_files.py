"""Releases: what a YAML file may say, and what is said of one that does not."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.yaml_text import parse_overrides, read_yaml
from sae_lens_c2r.releases.files import (
    REGISTRY,
    _override,
    find_release,
    read_release,
    shipped_releases,
)
from sae_lens_c2r.saes.sae_ref import SAERef
from tests.command import run_command
from tests.language_model import RUNNER, WIDTH, saved_model

SHIPPED = sorted(REGISTRY.glob("*.yaml"))

# With a model that is trained on within a second, which `write` adds.
RELEASE: dict[str, Any] = {
    "name": "small",
    "description": "Small SAEs.",
    "license": "mit",
    "repo_id": "org/small",
    "status": "planned",
    "runner": RUNNER,
    "sae": {"d_in": WIDTH, "d_sae": 1024, "k": 2},
    "grids": [
        {
            "id": "width_{width}/{architecture}_k{k}",
            "axes": {"architecture": ["topk", "topk_c2r"], "k": [2, 3]},
        }
    ],
}


def write(folder: Path, **changed: Any) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**RELEASE, "language_model": saved_model(), **changed}))
    return path


def test_grids_give_every_combination_an_id_of_its_own(tmp_path: Path) -> None:
    saes = read_release(write(tmp_path)).saes()
    assert [spec.sae_id for spec in saes] == [
        "width_1k/topk_k2",
        "width_1k/topk_k3",
        "width_1k/topk_c2r_k2",
        "width_1k/topk_c2r_k3",
    ]
    assert saes[3].fields == {"d_in": 8, "d_sae": 1024, "k": 3, "architecture": "topk_c2r"}


def test_changes_of_the_sae_hold_for_all_grids(tmp_path: Path) -> None:
    changes = parse_overrides(["sae.k=5", "language_model.training_tokens=200"])
    release = read_release(write(tmp_path), overrides=changes)
    assert [spec.fields["k"] for spec in release.saes()] == [5, 5]
    assert release.language_model.training_tokens == 200


def test_a_change_below_a_key_of_the_sae_holds_for_grids_that_have_that_key() -> None:
    own = {"release": "a", "sae_id": "b", "revision": "c"}
    grids = [{"id": "x", "sae": {"init": dict(own)}}, {"id": "y", "sae": {"k": 2}}]
    document: dict[str, Any] = {"grids": grids}
    _override(document, "sae.init.revision", "d")
    assert grids[0]["sae"] == {"init": {**own, "revision": "d"}}
    assert grids[1]["sae"] == {"k": 2}


MODEL = {"hub_id": "a/b", "hook_name": "c", "dataset": "d", "context_size": 8}


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("licence", {"licence": "mit"}),
        ("language_model.seed", {"language_model": {**MODEL, "training_tokens": 9, "seed": 0}}),
        ("grids.0.k", {"grids": [{"id": "x", "k": 3}]}),
        ("repo_id", {"repo_id": "small"}),
        *(("name", {"name": name}) for name in ("My SAEs", "large")),
        ("language_model.hub_id", {"language_model": {"hub_id": "gpt2"}}),
        ("grids", {"grids": []}),
        *(
            ("grids.id", {"grids": [{"id": name, "sae": {"architecture": "topk"}}]})
            for name in ("{width}_{depth}", "../{k}", "{", "README.md")
        ),
        *(
            ("grids.id", {"grids": [{"id": each} for each in ids]})
            for ids in (("sae", "sae"), ("a/b", "a"))
        ),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, key: str, changed: dict[str, Any]) -> None:
    path = write(tmp_path, **changed)
    with pytest.raises(UserError) as raised:
        read_release(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert f"`{key}`" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("name: small\nsae:\n  k: 2\n  d_sae: 8\n  k: 3\n", "k"),
        ("sae: {k: 2, k: 3}\n", "k"),
        ("name: small\n'name': large\n", "name"),
    ],
)
def test_a_key_occurs_once(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"small\.yaml.* the key `{key}` twice"):
        read_release(path)
    with pytest.raises(UserError):
        parse_overrides([f"sae={text}"])


def test_what_publishing_needs_training_does_not(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    needed = ("license", "repo_id", "status")
    document = {**RELEASE, "language_model": saved_model()}
    path.write_text(yaml.safe_dump({k: v for k, v in document.items() if k not in needed}))
    release = read_release(path)
    assert (release.license, release.repo_id, release.status) == (None, None, "planned")


def written(key: str, value: str) -> list[Any]:
    """A value as a file has it, and as `--set` does."""
    return [
        read_yaml(f"{key}: {value}\n")[key],
        *parse_overrides([f"a.{key}={value}"]).values(),
    ]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("1e6", 1e6), ("3e1", 30.0), ("1_000", 1000), ("1.5e3", 1500.0), ("1_0e2", 1000.0)),
        *(("1e-4", 1e-4), ("2.5", 2.5), ("2.0", 2.0), ("-1e1", -10.0), ("1E+2", 100.0)),
        *(("1E-4", 1e-4), ("+1.e-4", 1e-4), ("0.1e-3", 1e-4), ("1e38", 1e38)),
    ],
)
def test_scientific_notation_is_a_number(text: str, number: float) -> None:
    for found in written("k", text):
        assert (found, type(found)) == (number, type(number))


@pytest.mark.parametrize("commit", ["695e0514", "1234567", "0123456", "1e6"])
def test_a_commit_that_yaml_takes_for_a_number_has_to_be_quoted(commit: str) -> None:
    """As a number it would name another commit."""

    def of_model(typed: str) -> str | None:
        changes = parse_overrides([f"language_model.revision={typed}"])
        release = read_release(find_release("minilm-layer-3"), overrides=changes)
        return release.language_model.revision

    def of_start(typed: str) -> str | None:
        said = read_yaml(f"{{release: a, sae_id: b, revision: {typed}}}")
        return TypeAdapter(SAERef).validate_python(said).revision

    for revision in (of_model, of_start):
        assert revision(f"'{commit}'") == commit
        with pytest.raises((UserError, ValidationError)):
            revision(commit)


def test_what_an_alias_shares_with_the_grids_is_changed_once(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    document = {**RELEASE, "language_model": saved_model()}
    text = yaml.safe_dump({k: v for k, v in document.items() if k not in ("sae", "grids")})
    path.write_text(f"{text}sae: &a {{d_sae: 8, k: 2}}\ngrids: [{{id: x, sae: *a}}]\n")
    [spec] = read_release(path, overrides={"sae.k": 5}).saes()
    assert spec.fields == {"d_sae": 8, "k": 5}


def test_sae_lens_s_directory_would_take_our_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sae_lens.loading import pretrained_saes_directory as directory

    exported = shipped_releases()
    for release in exported:
        ran = run_command("registry", "export", release.name)
        assert ran.returncode == 0
        with (tmp_path / "pretrained_saes.yaml").open("a") as file:
            file.write(ran.stdout)
    monkeypatch.setattr(directory, "files", lambda _: tmp_path)
    parse = directory.get_pretrained_saes_directory.__wrapped__  # it keeps its result
    found = parse()
    assert len(exported) == len(found) == 12
    for release in exported:
        lookup = found[release.name]
        assert lookup.repo_id == release.repo_id
        assert lookup.conversion_func is None
        assert lookup.saes_map == {spec.sae_id: spec.sae_id for spec in release.saes()}


@pytest.mark.parametrize("name", [".", "minilm-layer-3.5", "elsewhere/minilm-layer-3.yaml"])
def test_only_a_whole_name_is_that_of_a_shipped_release(name: str) -> None:
    with pytest.raises(UserError, match=f"^`release` should be .* Found {re.escape(name)}"):
        find_release(name)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_release_says_its_coefficient_itself(path: Path) -> None:
    """Another default of ours trains no other SAE; the authors' runs have the paper's 5."""
    specs = [spec for spec in read_release(path).saes() if "c2r" in spec.fields["architecture"]]
    found = {spec.fields["c2r_coefficient"] for spec in specs}
    authors = path.stem.startswith(("gemma", "llama", "qwen")) and "lambda" not in path.stem
    assert specs
    assert not authors or found == {5}


def test_releases_are_listed_and_found() -> None:
    ran = run_command("registry", "list")
    assert ran.returncode == 0
    assert all(each in ran.stdout for each in ("minilm-layer-3", "planned"))
