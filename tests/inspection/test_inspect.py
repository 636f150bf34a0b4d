"""`sae-lens-c2r inspect`: any SAE, a table and a report; what is wrong is one line."""

import json
import re
from pathlib import Path

import pytest

from sae_lens_c2r.analysis import composition
from sae_lens_c2r.cli import main
from sae_lens_c2r.saes.sae_ref import SAERef, find_saes
from tests.architectures.training import make_sae
from tests.strategies import ARCHITECTURES


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main(["inspect", *map(str, arguments), "--device", "cpu"])
    return int(left.value.code or 0)


@pytest.fixture
def saes(tmp_path: Path) -> Path:
    """A folder of two SAEs, and of a checkpoint that is none of theirs."""
    for seed, name in enumerate(("topk_c2r", "batchtopk_c2r")):
        make_sae(name, seed=seed).save_inference_model(tmp_path / "saes" / "layer_0" / name)
    make_sae("topk_c2r").save_inference_model(tmp_path / "saes" / ".training" / "step-1")
    return tmp_path / "saes"


def test_a_folder_of_saes_makes_a_table_a_report_and_a_picture(
    saes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, figure = tmp_path / "report.html", tmp_path / "picture.svg"
    assert run(saes, "--out", out, "--figure", figure) == 0
    shown, html = capsys.readouterr().out, out.read_text()
    for seed, name in enumerate(("topk_c2r", "batchtopk_c2r")):
        value = f"{composition(make_sae(name, seed=seed).W_dec):.3f}"
        assert value in shown
        assert value in html
        assert f">{saes / 'layer_0' / name}</th>" in html
    assert "step-1" not in html
    assert not re.search(r'(src|href)="(?!#)', html), "the report loads something"
    assert figure.read_text().startswith("<svg")
    picture = tmp_path / "picture.png"
    assert run(saes, "--out", out, "--overwrite", "--figure", picture) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("form", ["save_model", "save_inference_model"])
def test_every_form_of_every_architecture_is_loaded(
    architecture: str, form: str, tmp_path: Path
) -> None:
    sae = make_sae(architecture)
    getattr(sae, form)(tmp_path / "sae")
    loaded = SAERef(folder=tmp_path / "sae").load("cpu")
    assert composition(loaded.W_dec) == pytest.approx(composition(sae.W_dec), rel=1e-5)


def test_what_cannot_be_loaded_is_one_line_and_the_others_are_shown(
    saes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = saes / "layer_0" / "topk_c2r"
    weights = broken / "sae_weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    foreign, empty, unknown, none = (tmp_path / name for name in ("a", "b", "c", "none"))
    foreign.mkdir()
    (foreign / "cfg.json").write_text("[1]")
    empty.mkdir()
    make_sae("topk_c2r").save_inference_model(unknown)
    config = json.loads((unknown / "cfg.json").read_text())
    (unknown / "cfg.json").write_text(json.dumps({**config, "architecture": "new"}))
    out = tmp_path / "report.html"
    wrong = [foreign, empty, unknown, none]
    assert run(saes, *wrong, "--out", out) == 1
    errors = capsys.readouterr().err.splitlines()
    [of_unknown] = [line for line in errors if line.startswith(f"{unknown}: ")]
    assert "`architecture` in cfg.json should be one of" in of_unknown
    assert of_unknown.endswith("Found new.")
    assert len(errors) == 5
    for path in (broken, *wrong):
        assert any(line.startswith(f"{path}: ") for line in errors), path
    assert "batchtopk_c2r</th>" in out.read_text()


def test_a_release_is_followed_by_an_id(saes: Path) -> None:
    errors: list[str] = []
    found = find_saes(["org/repo", "an/id", str(saes), "alone"], on_error=errors.append)
    assert (found[0].release, found[0].sae_id) == ("org/repo", "an/id")
    assert [source.folder for source in found[1:]] == sorted((saes / "layer_0").iterdir())
    assert errors == ["alone: should be a folder, or a release followed by an SAE's id."]


def test_a_release_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("org/repo", "an/id", "--out", tmp_path / "report.html") == 1
    said = capsys.readouterr().err
    assert said.startswith("org/repo an/id: cannot be loaded.")
    assert "the Hub cannot be reached" in said
    assert said.endswith("There is no folder org/repo either.\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--out", "--figure"])
@pytest.mark.parametrize("place", ["file.svg", "folder", "none/report.svg"])
def test_a_place_that_cannot_be_written_to_is_named_before_the_work(
    option: str,
    place: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sae_lens_c2r.saes.sae_ref.find_saes", None)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.svg").write_text("mine")
    options = ["--out", tmp_path / "report.html", option, tmp_path / place]
    overwrite = ["--overwrite"] * (place == "folder")
    assert run(tmp_path, *options, *overwrite) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"`{option[2:]}` should ")
    assert error.rstrip().endswith(f"Found {tmp_path / place}.")
    assert (tmp_path / "file.svg").read_text() == "mine"
    assert not (tmp_path / "report.html").exists()


def test_a_picture_of_another_kind_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture.pdf"
    assert run(tmp_path, "--figure", picture, "--out", tmp_path / "r.html") == 1
    assert capsys.readouterr().err.startswith("`figure` should end in .svg or .png.")
    assert list(tmp_path.iterdir()) == []
