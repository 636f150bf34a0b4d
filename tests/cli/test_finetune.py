"""`sae-lens-c2r finetune`: from an SAE to the table of what C2R changed."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from sae_lens import SAE

from sae_lens_c2r.releases.files import find_release, read_release
from sae_lens_c2r.saes.start_from import ESTIMATED
from sae_lens_c2r.training.plan import make_plan
from sae_lens_c2r.training.train import train
from tests.command import run_command
from tests.forkserver import Completed
from tests.hub.conftest import link_to_blobs
from tests.training.killing import SMALL

SAE_ID = "layer_3/width_256/batchtopk_k32"
TEXT = ("--text", "python-documentation", "--split", "train[-50:]")


def finetune(*arguments: object) -> Completed:
    return run_command("finetune", *arguments, "--device", "cpu")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small SAE of MiniLM, in a folder called `own`."""
    changes = {**SMALL, "sae.d_sae": 256, "language_model.training_tokens": 2048}
    release = read_release(find_release("minilm-layer-3"), overrides=changes)
    out = tmp_path_factory.mktemp("saes")
    [folder] = train(make_plan(release, device="cpu", only=(SAE_ID,)), out)
    return folder.rename(out / "own")


def test_an_sae_of_the_hubs_cache_is_fine_tuned_offline(trained: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--me--saes" / "snapshots" / "c0ffee"
    shutil.copytree(trained, snapshot / "own")
    trained = link_to_blobs(snapshot) / "own"
    out = tmp_path / "finetuned"
    command = [trained, "--tokens", "2000", "--out", out, *TEXT]
    ran = finetune(*command)
    assert ran.returncode == 0, ran.stderr
    shown = " ".join(ran.stdout.split())
    assert f"own starts from {trained}, under apache-2.0." in shown
    assert "/c0ffee/own has " in shown  # the comparison's sentence
    assert "Measured on " in shown
    assert "train[-50:]" in shown
    record = json.loads((out / "own" / "training.json").read_text())
    assert record["started_from"]["folder"] == str(trained)
    settings = record["settings"]
    assert settings["runner"]["lr"] == pytest.approx(1e-3 / 3)
    assert settings["saes"]["own"]["architecture"] == "batchtopk_c2r"
    assert settings["saes"]["own"]["k"] == 32
    assert "finetuned/own" in (out / "report.html").read_text()
    written = (out / "own" / "training.json").stat().st_mtime_ns
    assert finetune(*command).returncode == 0  # what is trained is measured again
    # And each of the three steps is one that a person can take.
    again = run_command("train", out / "finetuned.yaml", "--out", out, "--device", "cpu")
    assert "own is there already" in again.stderr
    assert (out / "own" / "training.json").stat().st_mtime_ns == written
    kept = (out / "report.html").read_bytes()
    told = finetune(Path(shutil.copytree(trained, tmp_path / "other")), *command[1:])
    assert told.returncode == 2
    assert "`--out` should be empty, or hold this same fine-tuning" in told.stderr
    assert (out / "report.html").read_bytes() == kept


def test_both_are_measured_on_what_is_trained_on(trained: Path, tmp_path: Path) -> None:
    """Without learning, the table shows twice the same, whatever tokens are left out."""
    folder = Path(shutil.copytree(trained, tmp_path / "own"))
    (folder / "training.json").unlink()  # its config alone speaks: no special tokens
    changes = ["runner.lr=0", "sae.topk_threshold_lr=0", "runner.exclude_special_tokens=false"]
    changes += ["runner.train_batch_size_tokens=512"]  # of which 20 are read for an estimate
    mine, out = tmp_path / "mine.jsonl", tmp_path / "out"
    rows = [{"id": i, "content": f"The parser reads {i} names. " * 9} for i in range(200)]
    mine.write_text("\n".join(map(json.dumps, rows)))
    changes += [f"language_model.dataset={mine}", "language_model.column=content"]
    options = [part for change in changes for part in ("--set", change)]
    command = [folder, "--tokens", "1000", "--out", out, *options]
    # What can be told before the training is, and nothing is written.
    for wrong in (("--set", "language_model.column=id"), ("--text", "missing.txt")):
        ran = finetune(*command, *wrong)
        assert ran.returncode in (1, 2)
        assert not out.exists()
    ran = finetune(*command)
    assert ran.returncode == 0, ran.stderr
    lines = [line.split() for line in ran.stdout.splitlines()]
    for title in ("expl.", "Measured"):
        assert any(line[:1] == [title] for line in lines), ran.stdout
    before, after = (
        [line[1:] for line in lines if line[:1] == [name] and "." not in line[-1][-1:]]
        for name in ("own", "out/own")  # rows of tables, which are no sentences
    )
    assert before[-3] == after[-3]  # explained variance, L0, dead latents
    again = out / "own"
    assert SAE.load_from_disk(again).cfg.metadata.dataset_column == "content"
    settings = json.loads((again / "training.json").read_text())["settings"]
    assert settings["saes"]["own"]["normalize_activations"] == ESTIMATED  # by SAELens
    first, second = (SAE.load_from_disk(each) for each in (folder, again))
    inputs = 2 * torch.randn(32, 384, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(second(inputs), first(inputs), rtol=1e-4, atol=1e-4)


def test_a_folder_of_something_else_is_left_as_it_is(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for place in (tmp_path, trained, trained.parent):
        ran = finetune(trained, "--tokens", "2000", "--out", place)
        assert ran.returncode == 2
        assert "`--out` should be empty" in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    new = tmp_path / "new"
    ran = finetune(trained, "--tokens", "2000", "--out", new, "--dry-run")
    assert ran.returncode == 0, ran.stderr
    assert not new.exists()
    several = finetune(trained, trained.parent, "x", "--tokens", "2000", "--out", new)
    assert several.returncode in (1, 2)
