"""Training of releases by the command."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import wandb
from sae_lens import SAE, SAETrainer

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.yaml_text import parse_overrides
from sae_lens_c2r.releases.files import read_release
from sae_lens_c2r.saes.hashes import sae_hashes
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.output_dir import WORK, Checkpoints, checkpoint_of
from sae_lens_c2r.training.plan import make_plan
from sae_lens_c2r.training.train import train
from tests.command import run as run_cli
from tests.releases.test_files import write
from tests.training.killing import MINILM, SMALL, as_options
from tests.training.test_plan import plan_of

IDS = [f"width_1k/{architecture}_k{k}" for architecture in ("topk", "topk_c2r") for k in (2, 3)]


def run(*arguments: object) -> int:
    return run_cli("train", *arguments, "--device", "cpu")


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path)
    assert run(path, "--out", tmp_path / "saes", "--dry-run") == 0
    assert "10 steps of 100" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_finished_is_left(tmp_path: Path) -> None:
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
    sae = SAERef(folder=out / IDS[3]).load_for_inference("cpu")
    assert record["weights_sha256"] == sae_hashes(sae)[0]


def test_a_language_model_feeds_all_its_saes_at_once(tmp_path: Path, of_model: Path) -> None:
    folders = sorted((of_model / "layer_3" / "width_512").iterdir())
    assert len(folders) == 4
    for folder in folders:
        sae = SAE.load_from_disk(folder)
        assert sae.cfg.metadata.model_name == "sentence-transformers/all-MiniLM-L6-v2"
        assert len(json.loads((folder / "training.json").read_text())["trained_together"]) == 4
    only = "layer_3/width_512/batchtopk_c2r_k32"
    command = [MINILM, *as_options(SMALL), "--only", only, "--out"]
    assert run(*command, tmp_path / "alone") == 0
    assert run(*command, tmp_path / "other", "--set", "runner.seed=1") == 0
    together, alone, other = (
        SAE.load_from_disk(out / only).W_dec
        for out in (of_model, tmp_path / "alone", tmp_path / "other")
    )
    assert torch.equal(together, alone), "an SAE depends on those that are trained beside it"
    assert not torch.equal(alone, other), "the order of the data is not the release's"


def test_a_finished_sae_of_other_settings_is_not_taken_for_the_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out, only = write(tmp_path), tmp_path / "saes", ["--only", IDS[0]]
    assert run(path, "--out", out, *only) == 0
    before = (out / IDS[0] / "sae_weights.safetensors").read_bytes()
    assert run(path, "--out", out, *only, "--set", "runner.lr=0.5") == 2
    assert "Found `runner.lr = 0.5`, and 0.0003 there" in capsys.readouterr().err
    assert run(path, "--out", out, *only, "--set", "sae.use_sparse_activations=true") == 2
    assert (out / IDS[0] / "sae_weights.safetensors").read_bytes() == before
    assert run(path, "--out", out, *only, "--set", "runner.logger.wandb_project=x") == 0
    assert f"{IDS[0]} is there already." in capsys.readouterr().err
    (out / IDS[0]).rename(out / IDS[1])
    assert run(path, "--out", out, "--only", IDS[1]) == 1
    assert f"training.json should have `settings` of {IDS[1]}" in capsys.readouterr().err


Settings = dict[str, Any]


def fields_of(settings: Settings) -> Settings:
    return settings["saes"][IDS[2]]


def with_fewer_fields(settings: Settings) -> None:
    """As by a version that lacks some of ours."""
    del fields_of(settings)["c2r_gate"], settings["runner"]["lr_end"]


def with_more_fields(settings: Settings) -> None:
    """As by a version that has fields beyond ours."""
    fields_of(settings)["c2r_later"] = settings["runner"]["later"] = 3


def with_another_default(settings: Settings) -> None:
    """As by a SAELens whose default was another one."""
    fields_of(settings)["aux_loss_coefficient"] = 0.5


@pytest.mark.parametrize(
    ("version", "options", "goes_on", "says"),
    [
        (with_fewer_fields, [], True, "version. Not compared: c2r_gate, lr_end."),
        (with_fewer_fields, ["runner.train_batch_size_tokens=50"], False, "tokens = 50"),
        (with_more_fields, [], True, "version. Not compared: c2r_later, later."),
        (with_more_fields, ["sae.c2r_gate=none"], False, "c2r_gate = 'none'"),
        (with_another_default, [], False, "aux_loss_coefficient = 1.0`, and 0.5 there"),
        (with_another_default, ["sae.aux_loss_coefficient=0.5"], True, ""),
    ],
)
def test_a_training_of_another_version_goes_on_unless_what_both_have_differs(
    version: Callable[[Settings], None],
    options: list[str],
    goes_on: bool,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A finished SAE is left, or a checkpoint continued from; nothing is to be deleted."""
    path, out, only = write(tmp_path), tmp_path / "saes", ["--only", IDS[2]]
    command = [path, "--out", out, *only, *(f"--set={option}" for option in options)]
    assert run(path, "--out", out, *only) == 0
    record = out / IDS[2] / "training.json"
    content = json.loads(record.read_text())
    version(content["settings"])
    record.write_text(json.dumps(content))
    assert (run(*command) == 0) == goes_on
    assert says in (told := capsys.readouterr().err)
    assert "elete" not in told
    about = {"settings": content["settings"], "circumstances": {}}
    Checkpoints(out / WORK).write(3, about, lambda _: [])
    record.unlink()
    planned = plan_of(path, IDS[2], **parse_overrides(options)).settings()
    resume = partial(checkpoint_of, planned, {"device": "cpu"}, [IDS[2]], out, print)
    if goes_on:
        assert resume(resume=True).step == 3
    else:
        with pytest.raises(UserError, match=re.escape(says)):
            resume(resume=True)
    assert says in capsys.readouterr().out or not goes_on


def test_a_record_says_what_was_read_from_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the names of the release: a model has a config."""
    monkeypatch.chdir(tmp_path)
    model, text = "org/model", "org/text"
    changes = {"language_model__hub_id": model, "language_model__dataset": text}
    plan = plan_of("gemma-2-2b-layer-12", **changes, language_model__name="gemma-2-2b")
    source = plan.release.language_model.model_copy(update={"name": None})
    release = plan.release.model_copy(update={"language_model": source})
    of_name = replace(plan, release=release)
    assert of_name.from_disk == []
    Path(model).mkdir(parents=True)
    assert of_name.from_disk == []
    Path(text).mkdir()
    Path(model, "config.json").write_text("{}")
    Path(text, "a.txt").write_text("words")
    assert of_name.from_disk == [model, text]
    assert plan.from_disk == [text]


@pytest.mark.parametrize("way", ["a folder", "a file"])
def test_what_is_in_the_way_is_named_before_training(
    tmp_path: Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = found = tmp_path / "saes" / IDS[1].split("/")[0]
    if way == "a folder":
        found = tmp_path / "saes" / IDS[1]
        mine = found / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    assert run(release := write(tmp_path), "--out", tmp_path / "saes") == 2
    assert str(found) in capsys.readouterr().err
    assert sorted(path for path in tmp_path.rglob("*") if path != release) == before


def test_what_is_not_ours_stays_where_checkpoints_were(tmp_path: Path) -> None:
    """And the samples are those that were trained on, which fill the last batch."""
    out, samples = tmp_path / "saes", "language_model.training_tokens=130"
    notes = out / ".training" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    assert run(write(tmp_path), "--out", out, "--only", IDS[0], "--set", samples) == 0
    assert [path.name for path in notes.parent.iterdir()] == ["notes.txt"]
    record = json.loads((out / IDS[0] / "training.json").read_text())
    assert (record["steps"], record["samples"]) == (2, 200)


def test_what_was_trained_with_an_infinite_setting_is_saved_and_known_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON has no infinity: a record that could not be written would lose the training."""
    out = tmp_path / "saes"
    grids = [{"id": "x", "sae": {"architecture": "standard"}}]
    release = write(tmp_path, sae={"d_in": 8, "d_sae": 1024}, grids=grids)
    for _ in range(2):
        assert run(release, "--out", out, "--set=sae.lp_norm=.inf") == 0
    assert "x is there already." in capsys.readouterr().err
    record = json.loads((out / "x" / "training.json").read_text())
    assert record["settings"]["saes"]["x"]["lp_norm"] == float("inf")
    assert torch.isfinite(SAE.load_from_disk(out / "x").W_dec).all()


def test_an_sae_that_diverges_is_not_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = write(tmp_path), tmp_path / "saes"
    assert run(path, "--out", out, "--only", IDS[0], "--set", "runner.lr=1e30") == 1
    assert re.search(rf"{IDS[0]}: `\w+` should stay finite", capsys.readouterr().err)
    assert not [*out.rglob("*.safetensors"), *out.rglob("step-*")]


def test_what_sae_lens_raises_is_one_line_and_its_traceback_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [write(tmp_path), "--out", tmp_path / "saes", "--only", IDS[0]]
    monkeypatch.setattr(SAETrainer, "step", Mock(side_effect=ValueError("It cannot\ndo that.")))
    assert run(*command) == 1
    assert "SAELens failed: ValueError: It cannot do that. " in capsys.readouterr().err
    assert "Traceback" in (tmp_path / "saes" / ".training" / "traceback.txt").read_text()
    assert not (tmp_path / "saes" / IDS[0]).exists()
    monkeypatch.undo()
    assert run(*command) == 0
    assert not (tmp_path / "saes" / ".training").exists()


def test_a_training_that_fails_ends_its_run_of_wandb_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the curves of the next one in this process would be logged to it."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    runs, ended = [], []
    log, finish = wandb.Run.log, wandb.Run.finish

    def note_and_log(run: wandb.Run, *arguments: Any, **options: Any) -> None:
        runs.append(run.name)
        log(run, *arguments, **options)

    def note_and_finish(run: wandb.Run, exit_code: int | None = None) -> None:
        ended.append((run.name, exit_code))
        finish(run, exit_code)

    monkeypatch.setattr(wandb.Run, "log", note_and_log)
    monkeypatch.setattr(wandb.Run, "finish", note_and_finish)
    logger = {"wandb_log_frequency": 1, "log_weights_to_wandb": False}

    def train_as(name: str) -> None:
        changes = {"runner.logger": {**logger, "run_name": name}}
        read = read_release(write(tmp_path), overrides=changes)
        plan = make_plan(read, device="cpu", only=IDS[:1])
        train(plan, tmp_path / name)

    with monkeypatch.context() as failing:
        failing.setattr(SAETrainer, "step", Mock(side_effect=ValueError("no")))
        with pytest.raises(UserError, match="SAELens failed: ValueError: no"):
            train_as("a")
    train_as("b")
    assert ended == [("a", 1), ("b", 0)]
    assert runs == ["b"] * len(runs)
    assert len(runs) >= 10
