"""The parts that need a GPU: each is done once, and goes on where it was stopped."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file, save_file

from benchmarks import gpu
from benchmarks.experiment import saved_in
from benchmarks.worlds.language_model import SIZES


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RECORD", "TESTED", "RELEASE", "DATA"):
        monkeypatch.setattr(gpu, name, tmp_path / name.lower())
    monkeypatch.setattr("sys.argv", ["gpu"])


def test_without_a_gpu_nothing_is_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main() == 1
    assert "needs a GPU" in capsys.readouterr().err
    assert not gpu.RECORD.exists()


def test_a_part_is_done_once_and_those_after_it_wait(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of the tests of devices, those that have passed are left out."""
    tests = tmp_path / "test_it.py"
    tests.write_text("def test_good(): pass\ndef test_bad(): assert False\n")
    monkeypatch.chdir(tmp_path)
    command = ["pytest", "test_it.py", "-v", "-p", "no:cacheprovider", "--rootdir=."]
    monkeypatch.setattr(gpu, "PARTS", {"devices": command, "release": ["this"]})
    monkeypatch.setattr(gpu, "keep_release", gpu.RELEASE.touch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "environment", lambda _: {"gpu": "a card"})
    assert gpu.main() == gpu.main() == 2
    tests.write_text(tests.read_text().replace("False", "True"))
    assert gpu.main() == gpu.main() == 0
    assert gpu.run("devices"), "all have passed"
    log = gpu.TESTED.read_text()
    assert (log.count("test_good PASSED"), log.count("test_bad PASSED")) == (1, 1)
    assert {part["gpu"] for part in json.loads(gpu.RECORD.read_text()).values()} == {"a card"}
    assert gpu.RELEASE.exists()


def test_what_is_kept_can_be_joined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "PIECE", 1000)
    for run in SIZES["wide"][0].runs():
        folder = saved_in(gpu.DATA, run)
        folder.mkdir(parents=True)
        (folder / "cfg.json").write_text("{}")
        save_file({"W_dec": torch.rand(40, 20)}, folder / "sae_weights.safetensors")
    gpu.keep_release()
    assert [path.name for path in sorted(gpu.RELEASE.iterdir())] == ["batchtopk-0", "c2r-5"]
    [run] = [run for run in SIZES["wide"][0].runs() if (run.seed, run.strength) == (0, 5)]
    weights = load_file(saved_in(gpu.DATA, run) / "sae_weights.safetensors")
    pieces = sorted((gpu.RELEASE / "c2r-5").glob("sae_weights.safetensors.*"))
    assert max(path.stat().st_size for path in pieces) == 1000
    joined = load(b"".join(path.read_bytes() for path in pieces))
    assert torch.equal(joined["W_dec"], weights["W_dec"].half())
