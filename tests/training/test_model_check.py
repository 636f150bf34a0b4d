"""Plans beside the config of their model, and releases that are begun by a command."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from sae_lens import SAE

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.models import loading, offline
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


def test_an_encoder_is_not_read_as_a_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """TransformerLens would leave weights of one empty, with a line of its log."""
    encoder = SimpleNamespace(attention_dir="bidirectional")
    monkeypatch.setattr(loading, "pretrained_config", lambda *_, **__: encoder)
    with pytest.raises(UserError, match=r"^`model` should be a decoder"):
        told(GEMMA)


def small(d_sae: int, tokens: int) -> list[str]:
    """Changes with which a new release is trained soon."""
    changes = [f"sae.d_sae={d_sae}", f"language_model.training_tokens={tokens}"]
    changes += ["runner.n_batches_in_buffer=4", "runner.n_batches_for_norm_estimate=2"]
    changes += ["runner.train_batch_size_tokens=128", "runner.store_batch_size_prompts=1"]
    changes += ["runner.lr_decay_steps=1"]
    return [argument for change in changes for argument in ("--set", change)]


def test_a_new_release_trains_offline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "documents", lambda: ("a text of some words " * 2000,))
    assert run("registry", "new", "mine", "--out", tmp_path) == 0
    path = tmp_path / "mine.yaml"
    assert f"`sae-lens-c2r train {path} --dry-run` shows" in capsys.readouterr().out
    assert run("registry", "new", "mine.yaml", "--out", tmp_path) == 1
    assert f"Found {path}." in capsys.readouterr().err
    out = tmp_path / "saes"
    assert run("train", path, "--out", out, "--device", "cpu", *small(256, 512)) == 0
    assert "2 SAEs trained" in capsys.readouterr().err
    for sae_id in ("batchtopk_k32", "batchtopk_c2r_k32"):
        assert torch.isfinite(SAE.load_from_disk(out / sae_id).W_dec).all()


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
