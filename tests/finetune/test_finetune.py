"""`sae-lens-c2r finetune`: from an SAE to the table of what C2R changed."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from sae_lens import SAE

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.finetune.release import TOKENS
from sae_lens_c2r.finetune.run import Finetuning
from sae_lens_c2r.inspection.measures import SAEReport, measure
from sae_lens_c2r.releases.files import find_release, read_release
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.saes.start_from import ESTIMATED
from sae_lens_c2r.training.plan import make_plan
from sae_lens_c2r.training.train import train
from tests.command import run_command
from tests.forkserver import Completed
from tests.hub.conftest import link_to_blobs, say
from tests.training.killing import SMALL

SAE_ID = "layer_3/width_256/batchtopk_k32"


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
    command = [trained, "--tokens", "2k", "--out", out, "--measured-tokens", "500"]
    ran = finetune(*command)
    assert ran.returncode == 0, ran.stderr
    shown = " ".join(ran.stdout.split())
    assert f"own starts from {trained}, under apache-2.0." in shown
    changed = json.loads((out / "finetune.json").read_text())["own"]
    before, after = changed["before"], changed["after"]
    for name in ("composition", "composition_of_live", "cosine_median"):
        assert f"{after[name]:.3f}" in shown
    assert f"own has {changed['redundant_pairs']['pairs']} pairs of latents with" in shown
    assert 0.5 < after["cosine_median"] < 1
    assert changed["matched_latents"]["latents"] == 256 * (1 - before["dead_latents"])
    record = json.loads((out / "own" / "training.json").read_text())
    assert record["started_from"]["folder"] == str(trained)
    settings = record["settings"]
    assert settings["runner"]["lr"] == pytest.approx(1e-3 / 3)
    assert settings["saes"]["own"]["architecture"] == "batchtopk_c2r"
    assert settings["saes"]["own"]["k"] == 32
    assert "own, fine-tuned" in (out / "report.html").read_text()
    written = (out / "own" / "training.json").stat().st_mtime_ns
    assert finetune(*command).returncode == 0  # what is trained is measured again
    assert (out / "own" / "training.json").stat().st_mtime_ns == written
    other = Path(shutil.copytree(trained, tmp_path / "other"))
    kept = (out / "finetune.json").read_bytes()
    told = finetune(other, *command[1:])
    assert told.returncode == 2
    assert "`--out` should have no finetune.json of other SAEs" in told.stderr
    assert "Measuring" not in told.stderr
    assert (out / "finetune.json").read_bytes() == kept


def test_what_is_set_holds_for_what_is_measured_before(trained: Path, tmp_path: Path) -> None:
    """Without learning, the table shows twice the same, whatever tokens are left out."""
    folder = Path(shutil.copytree(trained, tmp_path / "own"))
    (folder / "training.json").unlink()  # its config alone speaks: no special tokens
    changes = ["runner.lr=0", "sae.topk_threshold_lr=0", "runner.exclude_special_tokens=false"]
    changes += ["runner.train_batch_size_tokens=512"]  # of which 20 are read for an estimate
    options = [part for change in changes for part in ("--set", change)]
    measuring = ["--measured-tokens", "500", "--out", tmp_path / "out"]
    mine = tmp_path / "mine.jsonl"
    rows = [{"id": i, "content": f"The parser reads {i} names. " * 9} for i in range(200)]
    mine.write_text("\n".join(map(json.dumps, rows)))
    command = [folder, "--tokens", "1k", *measuring, *options, "--dataset", mine, "--column"]
    for wrong in ("id", "text"):
        assert "column" in finetune(*command, wrong, "--dry-run").stderr
    assert "missing.txt" in finetune(*command, "content", "--text=missing.txt").stderr
    ran = finetune(*command, "content")
    assert ran.returncode == 0, ran.stderr
    changed = json.loads((tmp_path / "out" / "finetune.json").read_text())["own"]
    for name in ("l0", "explained_variance", "dead_latents"):
        assert changed["after"][name] == pytest.approx(changed["before"][name], rel=1e-3)
    again = tmp_path / "out" / "own"
    assert SAE.load_from_disk(again).cfg.metadata.dataset_column == "content"
    settings = json.loads((again / "training.json").read_text())["settings"]
    assert settings["saes"]["own"]["normalize_activations"] == ESTIMATED  # by SAELens
    before, after = (SAE.load_from_disk(each) for each in (folder, again))
    inputs = 2 * torch.randn(32, 384, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(after(inputs), before(inputs), rtol=1e-4, atol=1e-4)


def test_what_is_wrong_with_the_place_is_told_before_any_work(
    trained: Path, tmp_path: Path
) -> None:
    refs, out = [SAERef(folder=trained)], tmp_path / "out"
    # With nothing to measure on, which should not be needed.
    told: list[str] = []
    tuning = Finetuning(refs, {TOKENS: 1}, device="cpu", text="missing.txt", tell=told.append)
    for place in (trained, trained.parent):
        with pytest.raises(UserError, match=f"`out` should.* apart from the SAEs.*{trained}"):
            tuning.check_out(place)
    tuning.check_out(out, look_only=True)
    assert not out.exists()
    tuning.check_out(out)
    assert list(out.iterdir()) == []
    (out / "report.html").write_text("Somebody's.")
    with pytest.raises(UserError, match=r"no report\.html of other SAEs"):
        tuning.check_out(out)
    tuning.check_out(out, overwrite=True)
    (out / "finetune.json").write_text('{"own": {}}')
    with pytest.raises(UserError, match=r"no report\.html of other SAEs"):
        tuning.check_out(out)
    (out / "report.html").write_text("own, fine-tuned")
    tuning.check_out(out)
    (out / ".training" / "step-1").mkdir(parents=True)
    with pytest.raises(UserError, match="Move it away to start again"):
        tuning.check_out(out)
    assert "step-1 is damaged" in told[-1]
    shutil.rmtree(out / ".training")
    (out / "own").mkdir()
    with pytest.raises(UserError, match="no SAE folder that lacks"):
        tuning.check_out(out)
    with pytest.raises(UserError, match="be a folder that can be written to"):
        tuning.check_out(out / "report.html")


def test_what_an_sae_does_not_say_is_measured_or_asked_for(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[SAEReport] = []

    def noted(*arguments: Any) -> SAEReport:
        reports.append(measure(*arguments))
        return reports[-1]

    monkeypatch.setattr("sae_lens_c2r.finetune.run.measure", noted)
    folder = Path(shutil.copytree(trained, tmp_path / "own"))
    (folder / "training.json").unlink()
    say(folder, dataset_path=..., training_architecture_details=...)
    command = [folder, "--tokens", "2k", "--out", tmp_path / "finetuned", "--dry-run"]
    for wrong, status, said in (
        (("nowhere", "--tokens", "2k"), 1, "nowhere should be a folder"),
        (command, 2, "`--dataset` should be given"),
        ((*command, "--dataset", "a.txt", "--out", folder), 2, "`--out` should be a folder"),
    ):
        ran = finetune(*wrong)
        assert ran.returncode == status
        assert said in ran.stderr
    text = ["--dataset", "python-documentation", "--measured-tokens", "500"]
    ran = finetune(*command, *text)
    assert ran.returncode == 0
    shown = ran.stdout + ran.stderr
    assert "own does not say its L0: measuring" in shown
    [k], [report] = re.findall(r"\bk (\d+),", shown), reports
    assert int(k) == max(1, round(report.metrics()["l0"]))
    assert 1 < int(k) < 256  # it was hardly trained
    assert "under an unknown licence" in shown
    assert not (tmp_path / "finetuned").exists()
