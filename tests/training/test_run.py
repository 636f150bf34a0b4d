"""Training of releases by the command."""

import json
from pathlib import Path

import pytest
import torch
from sae_lens import SAE

from sae_lens_c2r.cli import main
from tests.test_registry import write

IDS = [f"width_1k/{architecture}_k{k}" for architecture in ("topk", "topk_c2r") for k in (2, 3)]


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main(["train", *map(str, arguments), "--device", "cpu"])
    return int(left.value.code or 0)


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path)
    assert run(path, "--out", tmp_path / "saes", "--dry-run") == 0
    assert "10 steps of 100" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [path]


def test_known_features_are_trained_on_and_what_is_finished_is_left(tmp_path: Path) -> None:
    path, out = write(tmp_path), tmp_path / "saes"
    assert run(path, "--out", out, "--only", IDS[0], "--only", IDS[3]) == 0
    written = (out / IDS[0] / "training.json").stat().st_mtime_ns
    assert sorted(folder.name for folder in (out / "width_1k").iterdir()) == [
        "topk_c2r_k3",
        "topk_k2",
    ]
    assert run(path, "--out", out) == 0
    assert (out / IDS[0] / "training.json").stat().st_mtime_ns == written
    for sae_id in IDS:
        assert SAE.load_from_disk(out / sae_id).cfg.architecture() == "topk"
    record = json.loads((out / IDS[3] / "training.json").read_text())
    assert record["settings"]["saes"][IDS[3]]["architecture"] == "topk_c2r"
    assert record["settings"]["saes"][IDS[3]]["k"] == 3
    assert record["steps"] == 10
    assert record["samples_per_second"] > 0


def test_a_language_model_feeds_all_its_saes_at_once(tmp_path: Path) -> None:
    small = ["language_model.training_tokens=4096", "runner.lr_decay_steps=1", "sae.d_sae=512"]
    small += ["runner.train_batch_size_tokens=1024", "runner.n_batches_in_buffer=8"]
    changes = [argument for change in small for argument in ("--set", change)]
    first, second = tmp_path / "first", tmp_path / "second"
    assert run("minilm-layer-3", "--out", first, *changes) == 0
    folders = sorted((first / "layer_3" / "width_512").iterdir())
    assert len(folders) == 4
    for folder in folders:
        sae = SAE.load_from_disk(folder)
        assert sae.cfg.metadata.model_name == "sentence-transformers/all-MiniLM-L6-v2"
        assert len(json.loads((folder / "training.json").read_text())["trained_together"]) == 4
    only = "layer_3/width_512/batchtopk_c2r_k32"
    assert run("minilm-layer-3", "--out", second, *changes, "--only", only) == 0
    weights = [SAE.load_from_disk(out / only).W_dec for out in (first, second)]
    assert torch.equal(*weights), "an SAE depends on those that are trained beside it"


def test_what_lies_in_the_way_is_named_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "saes" / IDS[1] / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert run(write(tmp_path), "--out", tmp_path / "saes") == 1
    assert f"Found {mine.parent}" in capsys.readouterr().err
    assert [path for path in (tmp_path / "saes").rglob("*") if path.is_file()] == [mine]


def test_a_wrong_release_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gemma-3") == 1
    assert "Found `gemma-3`" in capsys.readouterr().err
