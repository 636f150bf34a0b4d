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


def test_a_part_is_done_once_and_those_after_it_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "environment", lambda _: {"gpu": "a card"})
    called, fails = [], {"penalty"}
    for name in gpu.PARTS:

        def part(_seconds: float, name: str = name) -> bool:
            called.append(name)
            return name not in fails

        monkeypatch.setitem(gpu.PARTS, name, part)
    assert gpu.main() == 2
    fails.clear()
    assert gpu.main() == gpu.main() == 0
    assert called == ["devices", "penalty", "penalty", "training_step", "release"]
    assert {part["gpu"] for part in json.loads(gpu.RECORD.read_text()).values()} == {"a card"}


def test_tests_that_have_passed_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "CHOSEN", "one_penalty and cpu and nearest")
    assert gpu.devices(600)
    passed = gpu.TESTED.read_text().splitlines()
    assert len(passed) == len(set(passed)) == 2
    gpu.TESTED.write_text(passed[0] + "\n")
    assert gpu.devices(600)
    assert sorted(gpu.TESTED.read_text().splitlines()) == sorted(passed)
    assert gpu.devices(600), "all have passed"


def test_what_is_kept_can_be_joined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "PIECE", 1000)
    for run in SIZES["wide"][0].runs():
        folder = saved_in(gpu.DATA, run)
        folder.mkdir(parents=True)
        (folder / "cfg.json").write_text("{}")
        save_file({"W_dec": torch.rand(40, 20)}, folder / "sae_weights.safetensors")
    assert gpu.keep_release()
    assert [path.name for path in sorted(gpu.RELEASE.iterdir())] == ["batchtopk-0", "c2r-5"]
    [run] = [run for run in SIZES["wide"][0].runs() if (run.seed, run.strength) == (0, 5)]
    weights = load_file(saved_in(gpu.DATA, run) / "sae_weights.safetensors")
    pieces = sorted((gpu.RELEASE / "c2r-5").glob("sae_weights.safetensors.*"))
    assert max(path.stat().st_size for path in pieces) == 1000
    joined = load(b"".join(path.read_bytes() for path in pieces))
    assert torch.equal(joined["W_dec"], weights["W_dec"].half())
