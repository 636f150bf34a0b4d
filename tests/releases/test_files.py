"""Releases: what a YAML file may say, and what is said of one that does not."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.yaml_text import parse_overrides
from sae_lens_c2r.cli import main
from sae_lens_c2r.releases.files import (
    REGISTRY,
    find_release,
    read_release,
    shipped_releases,
)
from sae_lens_c2r.releases.model import ReleaseError

SHIPPED = sorted(REGISTRY.glob("*.yaml"))

RELEASE: dict[str, Any] = {
    "name": "small",
    "description": "Small SAEs.",
    "license": "mit",
    "repo_id": "org/small",
    "status": "planned",
    "synthetic_model": {
        "training_samples": 1000,
        "config": {"num_features": 16, "hidden_dim": 8, "seed": 0},
    },
    "runner": {"batch_size": 100, "run_final_eval": False},
    "sae": {"d_in": 8, "d_sae": 1024, "k": 2},
    "grids": [
        {
            "id": "width_{width}/{architecture}_k{k}",
            "axes": {"architecture": ["topk", "topk_c2r"], "k": [2, 3]},
        }
    ],
}


def write(folder: Path, **changed: Any) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**RELEASE, **changed}))
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
    changes = parse_overrides(["sae.k=5", "synthetic_model.training_samples=200"])
    release = read_release(write(tmp_path), overrides=changes)
    assert [spec.fields["k"] for spec in release.saes()] == [5, 5]
    assert release.synthetic_model is not None
    assert release.synthetic_model.training_samples == 200


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_releases_are_found_by_name_and_read(path: Path) -> None:
    assert find_release(path.stem) == path
    assert read_release(path).saes()


def test_there_are_the_releases_of_the_paper() -> None:
    names = {path.stem for path in SHIPPED}
    assert {"gemma-2-2b-layer-12", "qwen3-8b-layer-20", "llama-3-8b-layer-20"} <= names


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("status", {"status": "done"}),
        ("licence", {"licence": "mit"}),
        (
            "synthetic_model.seed",
            {"synthetic_model": {**RELEASE["synthetic_model"], "seed": 0}},
        ),
        ("grids.0.k", {"grids": [{"id": "x", "k": 3}]}),
        ("repo_id", {"repo_id": "small"}),
        ("license", {"license": "MIT"}),
        *(("name", {"name": name}) for name in ("My SAEs", "large")),
        (
            "synthetic_model.training_samples",
            {"synthetic_model": {"config": {}, "training_samples": "4e5"}},
        ),
        (
            "language_model.hub_id",
            {"synthetic_model": None, "language_model": {"hub_id": "gpt2"}},
        ),
        ("language_model", {"synthetic_model": None}),
        ("grids", {"grids": []}),
        *(
            ("grids.id", {"grids": [{"id": name, "sae": {"architecture": "topk"}}]})
            for name in ("{width}_{depth}", "../{k}", "a/" + "b" * 256, "{k:>999999999999}")
        ),
        *(
            ("grids.id", {"grids": [{"id": name, "sae": {"architecture": "topk"}}]})
            for name in ("{k.x}", "{}", "{", "{k:zz}", "{k:>1000}")
        ),
        ("grids.id", {"grids": [{"id": "sae"}, {"id": "sae"}]}),
        ("grids.id", {"grids": [{"id": "a/b"}, {"id": "a"}]}),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, key: str, changed: dict[str, Any]) -> None:
    path = write(tmp_path, **changed)
    with pytest.raises(ReleaseError) as raised:
        read_release(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert f"`{key}`" in str(raised.value)


def test_what_to_write_is_said_where_yaml_reads_text(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"YAML reads it as text: write 400_000\.$"):
        read_release(write(tmp_path, synthetic_model={"config": {}, "training_samples": "4e5"}))


@pytest.mark.parametrize("text", ["name: [", "- a list", "\x00"])
def test_a_file_that_is_no_release_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(text)
    with pytest.raises(ReleaseError, match=str(path)):
        read_release(path)


def test_a_list_is_named_by_its_kind_however_long_it_is(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text("- an item\n" * 10_000)
    with pytest.raises(ReleaseError, match=r"should be a mapping of keys\. Found a list\.$"):
        read_release(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "a: &a [x]\nb: [*a, *a]\n",
            "Line 2 should say what it means in full. Found the alias",
        ),
        ("name: &a [*a]\n", "Found the alias `*a`."),
        ("sae: &a {k: 2}\ngrids: {<<: *a}\n", "Found the alias `*a`."),
        ("name: small\nsae:\n  k: 2\n  d_sae: 8\n  k: 3\n", "`k` should be there once in a"),
        ("sae: {k: 2, k: 3}\n", "Found it in line 1 and in line 1."),
        ("name: small\n'name': large\n", "Found it in line 1 and in line 2."),
        ("[" * 1000, "It should not be nested as deep as it is."),
        ("name: 2026-13-45\n", "It should be YAML. month must be in 1..12"),
        ("name: [\n", "It should be YAML. while parsing a flow"),
        (f"sae: {{k: {'9' * 20_000}}}\n", "It should be YAML."),
        *(
            (f"name: {value}\n", "It should be YAML.")
            for value in ("!!bool maybe", "!!int ''", "!!float ''", "!!timestamp foo")
        ),
    ],
)
def test_yaml_that_would_hang_or_says_two_things_is_refused_in_one_line(
    tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(text)
    with pytest.raises(ReleaseError) as raised:
        read_release(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400
    with pytest.raises(UserError):
        parse_overrides([f"sae={text}"])


def test_how_many_saes_a_grid_is_of_is_said_before_there_are_any(tmp_path: Path) -> None:
    axes = {f"axis_{number}": list(range(39)) for number in range(6)}
    with pytest.raises(ReleaseError, match=r"at most 1,000 SAEs.*Found 3,518,743,761\.$"):
        read_release(write(tmp_path, grids=[{"id": "x", "axes": axes}]))


def test_what_publishing_needs_training_does_not(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    needed = ("license", "repo_id", "status")
    path.write_text(yaml.safe_dump({k: v for k, v in RELEASE.items() if k not in needed}))
    release = read_release(path)
    assert (release.license, release.repo_id, release.status) == (None, None, "planned")


def test_an_unknown_release_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ReleaseError, match=r"gemma-2-2b-layer-12.*Found `gemma-3`"):
        find_release("gemma-3")


@pytest.mark.parametrize("change", ["sae.k", "=3", ""])
def test_a_change_without_a_key_and_a_value_is_refused(change: str) -> None:
    with pytest.raises(UserError, match=r"should be like sae\.k=50"):
        parse_overrides([change])


def test_a_change_that_is_no_yaml_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="should have a value in YAML") as raised:
        parse_overrides(["sae.k=2", "sae.k=[1"])
    assert "`--set sae.k=[1`" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_sae_lens_s_directory_would_take_our_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sae_lens.loading import pretrained_saes_directory as directory

    exported, text = [], ""
    for release in shipped_releases():
        if release.language_model is None:
            with pytest.raises(SystemExit):
                main(["registry", "export", release.name])
            assert "should have a `language_model`" in capsys.readouterr().err
        else:
            with pytest.raises(SystemExit, match="0"):
                main(["registry", "export", release.name])
            exported.append(release)
            text += capsys.readouterr().out
    (tmp_path / "pretrained_saes.yaml").write_text(text)
    monkeypatch.setattr(directory, "files", lambda _: tmp_path)
    parse = directory.get_pretrained_saes_directory.__wrapped__  # it keeps its result
    found = parse()
    assert len(exported) == len(found) == 10
    for release in exported:
        lookup = found[release.name]
        assert lookup.repo_id == release.repo_id
        assert lookup.conversion_func is None
        assert lookup.saes_map == {spec.sae_id: spec.sae_id for spec in release.saes()}


def test_releases_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, shown in (
        (["list"], ["synth-sae-bench-16k", "planned"]),
        (["show", "minilm-layer-3"], ["training_tokens: ", "# layer_3/width_24k/ort_c2r_k32"]),
    ):
        with pytest.raises(SystemExit, match="0"):
            main(["registry", *arguments])
        output = capsys.readouterr().out
        assert all(each in output for each in shown)
    with pytest.raises(SystemExit, match="1"):
        main(["registry", "show", "nothing"])
    assert "Found `nothing`" in capsys.readouterr().err
