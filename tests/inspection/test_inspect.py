"""`sae-lens-c2r inspect`: any SAE, a table and a report; what is wrong is one line."""

import re
from pathlib import Path

import pytest

from sae_lens_c2r.analysis import composition
from tests.architectures.training import make_sae
from tests.command import run_command
from tests.forkserver import Completed


def run(*arguments: object) -> Completed:
    return run_command("inspect", *arguments, "--device", "cpu")


@pytest.fixture
def saes(tmp_path: Path) -> Path:
    """A folder of two SAEs, and of a checkpoint that is none of theirs."""
    for seed, name in enumerate(("topk_c2r", "batchtopk_c2r")):
        make_sae(name, seed=seed).save_inference_model(tmp_path / "saes" / "layer_0" / name)
    make_sae("topk_c2r").save_inference_model(tmp_path / "saes" / ".training" / "step-1")
    return tmp_path / "saes"


def test_a_folder_makes_a_table_and_a_report(saes: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    ran = run(saes, "--out", out)
    shown, html = ran.stdout, out.read_text()
    for seed, name in enumerate(("topk_c2r", "batchtopk_c2r")):
        value = f"{composition(make_sae(name, seed=seed).W_dec):.3f}"
        assert value in shown
        assert value in html
        assert f">{name}</th>" in html
        assert f"<dd>{saes / 'layer_0' / name}</dd>" in html  # the whole name, once
    assert "step-1" not in html
    assert not re.search(r'(src|href)="(?!#)', html), "the report loads something"
    assert (ran.returncode, run(saes, "--out", out, "--overwrite").returncode) == (0, 0)


@pytest.mark.parametrize("place", ["file.html", "folder", "none/report.html"])
def test_a_place_that_cannot_be_written_to_is_named_before_the_work(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sae_lens_c2r.saes.sae_ref.find_saes", None)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.html").write_text("mine")
    overwrite = ["--overwrite"] * (place == "folder")
    ran = run(tmp_path, "--out", tmp_path / place, *overwrite)
    assert ran.returncode == 2
    assert ran.stderr.startswith("`--out` should ")
    assert ran.stderr.rstrip().endswith(f"Found {tmp_path / place}.")
    assert (tmp_path / "file.html").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.html", "folder"]
