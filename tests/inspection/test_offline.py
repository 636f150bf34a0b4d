"""An SAE of all-MiniLM-L6-v2 on a text of one's own, without a network."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from sae_lens import SAE
from sae_lens.saes.sae import SAEMetadata
from transformers import AutoModel, AutoTokenizer

from sae_lens_c2r.inspection.activations import ActivationSource
from sae_lens_c2r.models.offline import CLS, MINILM, SEP, model_folder
from sae_lens_c2r.models.text_source import TextSource
from tests.command import run_command
from tests.forkserver import run as run_python
from tests.saes.forms import make_form

WORDS = [f"The {n}th sentence says that {n} comes after {n - 1}." for n in range(1, 400)]


@pytest.fixture
def sae(tmp_path: Path) -> Path:
    """An SAE as one of MiniLM's is saved, with its model by the name on the Hub."""
    about = {"model_name": MINILM.hub_id, "model_class_name": "AutoModelForCausalLM"}
    about |= {"hook_name": "bert.encoder.layer.3", "dataset_path": "nobody/nothing"}
    reads = {"context_size": 128, "prepend_bos": False, "exclude_special_tokens": [0, CLS, SEP]}
    metadata = SAEMetadata(**about, **reads)
    make_form("jumprelu", d_in=384, d_sae=64, metadata=metadata).save_model(tmp_path / "sae")
    return tmp_path / "sae"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "my.txt"
    path.write_text(" ".join(WORDS))
    return path


def test_a_copy_of_minilm_reads_as_the_model_that_it_is_of(
    sae: Path, text: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(model_folder(MINILM), tmp_path / "copy")
    loaded, reader = SAE.load_from_disk(sae), {"n_tokens": 1000, "device": "cpu"}
    loaded.cfg.metadata.model_name = str(copy)
    loaded.cfg.metadata.model_hub_id = MINILM.hub_id
    named = TextSource(str(text))
    found = ActivationSource(named, **reader).activations(loaded, "x")
    assert set(found.rows[:, 0].tolist()) == {CLS}
    other = {"model_name": str(shutil.copytree(copy, tmp_path / "other"))}
    found = ActivationSource(named, instead=other, **reader).activations(loaded, "x")
    assert set(found.rows[:, 0].tolist()) != {CLS}


def test_the_text_is_read_in_the_rows_that_minilm_reads(
    sae: Path, text: Path, recwarn: pytest.WarningsRecorder
) -> None:
    named = TextSource(str(text))
    reader = ActivationSource(named, n_tokens=1000, device="cpu")
    found = reader.activations(SAE.load_from_disk(sae), "x")
    assert set(found.rows[:, 0].tolist()) == {CLS}
    assert set(found.rows[:, -1].tolist()) == {SEP}
    assert found.rows.shape == (8, 128)
    tokenizer = AutoTokenizer.from_pretrained(model_folder(MINILM))
    words = tokenizer(" ".join(WORDS), add_special_tokens=False)["input_ids"]
    assert found.rows[:, 1:-1].flatten().tolist() == words[: 8 * 126]
    with torch.no_grad():  # by transformers alone
        model = AutoModel.from_pretrained(model_folder(MINILM))
        states = model(found.rows, output_hidden_states=True).hidden_states[4]
    kept = ~torch.isin(found.rows, torch.tensor([CLS, SEP]))
    kept.view(-1)[1000:] = False
    torch.testing.assert_close(found.activations, states[kept], rtol=1e-4, atol=1e-4)
    said = " ".join(str(warning.message) for warning in recwarn)
    assert "fewer samples" not in said
    assert "copy construct" not in said


def test_inspect_tells_what_it_read(sae: Path, text: Path, tmp_path: Path) -> None:
    nothing, out = tmp_path / "nothing.txt", tmp_path / "report.html"
    nothing.write_text("\n \n")
    inspect = ("inspect", sae, "--tokens", 2000, "--device", "cpu", "--out", out)
    ran = run_command(*inspect, "--text", nothing)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith(f"{sae}: The text should have words")
    assert not out.exists()  # which would be in the way of what is right
    ran = run_command(*inspect, "--text", text)
    assert ran.returncode == 0, ran.stderr
    assert "too few to tell which latents are dead" not in ran.stderr
    assert f"tokens of {text}, read by {MINILM.hub_id}. Left out: " in out.read_text()
    ran = run_command(*inspect, "--text", text, "--tokens", 12, "--overwrite")
    assert "11 tokens are too few to tell which latents are dead" in ran.stderr


def test_evaluate_reads_it_as_well(sae: Path, tmp_path: Path) -> None:
    """Here out of a folder with two splits and a column of another name."""
    (tmp_path / "text").mkdir()
    for name, words in (("train", "no"), ("test", " ".join(WORDS))):
        row = json.dumps({"id": 1, "content": words})
        (tmp_path / "text" / f"{name}.jsonl").write_text(row)
    part = ("--split", "test", "--column", "content")
    out, small = tmp_path / "evaluation", "sae_lens.n_eval_sparsity_variance_batches=1"
    ran = run_python(
        *("-m", "sae_lens_c2r", "evaluate", sae, "--text", tmp_path / "text", *part),
        *("--out", out),
        *("--set", small, "--set", "sae_lens.n_eval_reconstruction_batches=1"),
        *("--set", "sae_lens.batch_size_prompts=4", "--device", "cpu"),
    )
    assert ran.returncode == 0, ran.stderr
    [found] = json.loads((out / "evaluation.json").read_text())["saes"]
    metrics = found["evaluations"]["sae_lens"]["metrics"]
    assert metrics["l0"] > 0
    settings = found["evaluations"]["sae_lens"]["settings"]
    assert (settings["split"], settings["column"]) == ("test", "content")
    assert f"{metrics['l0']:.1f}" in ran.stdout
