"""Plans beside the config of their model, and releases that are begun by a command."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub.errors import RepositoryNotFoundError
from sae_lens import SAE
from transformers import AutoConfig

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.cli import main
from sae_lens_c2r.offline import corpus
from sae_lens_c2r.offline.minilm import OFFLINE_MODEL
from sae_lens_c2r.releases import language_models
from sae_lens_c2r.releases.files import find_release, new_release, read_release
from sae_lens_c2r.releases.model import ReleaseError
from sae_lens_c2r.training.plan import make_plan
from sae_lens_c2r.training.summary import check_model

MINILM, GEMMA, QWEN = "minilm-layer-3", "gemma-2-2b-layer-12", "qwen3-8b-layer-20"


def told(name: str, **changes: Any) -> list[str]:
    changes = {key.replace("__", "."): value for key, value in changes.items()}
    lines: list[str] = []
    release = read_release(find_release(name), overrides=changes)
    check_model(make_plan(release, device="cpu"), lines.append)
    return lines


@pytest.mark.parametrize("name", [MINILM, GEMMA, "synth-sae-bench-2k"])
def test_our_releases_fit_their_models(name: str) -> None:
    assert told(name) == []


@pytest.mark.parametrize(
    ("name", "key", "value", "named"),
    [
        (MINILM, "sae.d_in", 380, "sae.d_in"),
        (GEMMA, "sae.d_in", 768, "sae.d_in"),
        *(
            (MINILM, "language_model.hook_name", value, named)
            for value, named in (
                ("bert.encoder.layer.3.intermediate", "sae.d_in"),
                ("blocks.3.hook_resid_post", "hook_name"),
                ("bert", "hook_name"),
            )
        ),
        (GEMMA, "language_model.hook_name", "blocks.26.hook_resid_post", "hook_name"),
        (GEMMA, "language_model.hook_name", "blocks.3.hook_resid_psot", "hook_name"),
        (GEMMA, "language_model.context_size", 100_000, "language_model.context_size"),
    ],
)
def test_what_does_not_fit_is_one_line(name: str, key: str, value: Any, named: str) -> None:
    with pytest.raises(UserError) as raised:
        told(name, **{key: value})
    assert f"`{named}` should" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_rows_are_at_most_as_long_as_a_model_of_the_hub_takes() -> None:
    changes = {"language_model__dataset": "org/text", "language_model__context_size": 513}
    with pytest.raises(ReleaseError, match=r"at most 512, the tokens that .*Found 513\."):
        told(MINILM, **changes)


def test_a_model_with_a_short_context_is_begun_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = SimpleNamespace(d_model=768, n_layers=12, n_ctx=512)
    monkeypatch.setattr(language_models, "pretrained_config", lambda _: config)
    release = yaml.safe_load(new_release("x", "gpt2"))
    assert release["language_model"]["context_size"] == 512
    assert release["language_model"]["hub_id"] == "openai-community/gpt2"


def test_nobody_is_asked_whether_a_model_s_code_may_be_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = {}
    theirs = AutoConfig.from_pretrained

    def note(*arguments: Any, **options: Any) -> Any:
        asked.update(options)
        return theirs(*arguments, **options)

    monkeypatch.setattr(AutoConfig, "from_pretrained", note)
    assert told(MINILM) == []
    assert asked["trust_remote_code"] is False


def test_a_network_that_fails_is_called_one_and_ends_nothing() -> None:
    [line] = told(QWEN)  # the tests have none
    assert line.startswith("The network did not give the config of Qwen/Qwen3-8B")


def test_a_model_that_the_hub_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_arguments: object, **_options: object) -> None:
        error = OSError("Qwen/Qwen3-8B is not a valid model identifier. Or log in.")
        response = SimpleNamespace(headers={}, request=None, status_code=404)
        raise error from RepositoryNotFoundError("404", response=response)  # type: ignore[arg-type]

    monkeypatch.setattr(AutoConfig, "from_pretrained", missing)
    with pytest.raises(ReleaseError, match=r"has, and lets you read\. Found Qwen/Qwen3-8B\. Q"):
        told(QWEN)


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([*map(str, arguments)])
    return int(left.value.code or 0)


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
    assert run("registry", "new", "mine", "--out", tmp_path) == 1
    assert f"Found {path}." in capsys.readouterr().err
    small = ["language_model.training_tokens=2048", "sae.d_sae=256"]
    small += ["runner.n_batches_in_buffer=8", "runner.n_batches_for_norm_estimate=2"]
    changes = [argument for change in small for argument in ("--set", change)]
    out = tmp_path / "saes"
    assert run("train", path, "--out", out, "--device", "cpu", *changes) == 0
    shown = capsys.readouterr()
    assert "2 SAEs trained" in shown.out
    alarms = ("fewer samples", "copy construct", "not be reproducible")
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
    small = ["language_model.training_tokens=1024", "sae.d_sae=64"]
    small += ["runner.n_batches_in_buffer=8", "runner.n_batches_for_norm_estimate=2"]
    changes = [argument for change in small for argument in ("--set", change)]
    command = ["train", "mine.yaml", "--out", "saes", "--only", "batchtopk_k32", *changes]
    command += ["--device", "cpu", "--set"]
    assert run(*command, "language_model.dataset=nobody/nothing") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    said = f"The model {OFFLINE_MODEL} or the text nobody/nothing is not on this machine, and "
    assert error.startswith(said)
    assert run(*command, "language_model.dataset=ds") == 0, capsys.readouterr().err
    sae = SAE.load_from_disk(tmp_path / "saes" / "batchtopk_k32")
    assert sae.cfg.metadata.model_name == OFFLINE_MODEL


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
    for model, says in (
        ("gemma-x", "`--model` should be one that TransformerLens has. Found 'gemma-x'."),
        ("gpt2", "The network did not give the config of gpt2, which has"),
    ):
        assert run("registry", "new", "other", "--model", model, "--out", tmp_path) == 1
        assert says in capsys.readouterr().err
    assert not (tmp_path / "other.yaml").exists()


@pytest.mark.parametrize("name", ["123", "true", "null", "no", "2024.01"])
def test_a_name_that_yaml_would_not_read_as_text_is_one(tmp_path: Path, name: str) -> None:
    assert run("registry", "new", name, "--out", tmp_path) == 0
    assert read_release(tmp_path / f"{name}.yaml").name == name


def test_a_name_that_no_release_may_have_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("registry", "new", "My SAEs", "--out", tmp_path) == 1
    assert "should be of small letters and digits" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine.yaml").touch()
    assert run("registry", "new", "mine", "--out", tmp_path / "mine.yaml") == 1
    assert "`--out` should be a folder. Found the file" in capsys.readouterr().err
