"""`sae-lens-c2r inspect --text`: what SAEs do on a text, and what keeps them from it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sae_lens import SAE
from transformer_lens import HookedTransformer

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.cli import main
from sae_lens_c2r.inspection import text as text_module
from sae_lens_c2r.inspection.behavior import observe
from sae_lens_c2r.inspection.text import TextReader, read_text
from tests.architectures.training import make_sae
from tests.language_model import CONTEXT, D_MODEL, HOOK, TEXTS, rows_of_tokens, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore")  # SAELens's, of so small a dataset


@pytest.fixture(autouse=True)
def model_of_every_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that needs no network."""

    def load(_class: str, name: str, **_: Any) -> HookedTransformer:
        if name != "tiny":
            raise OSError(f"{name} is not a model")
        return tiny_model()

    monkeypatch.setattr(text_module, "load_model", load)


def save(folder: Path, **metadata: Any) -> Path:
    """An SAE of the tiny model."""
    sae = make_sae("topk_c2r", d_in=metadata.pop("d_in", D_MODEL))
    about: dict[str, Any] = {
        "model_name": "tiny",
        "hook_name": HOOK,
        "context_size": CONTEXT,
        "prepend_bos": False,
        "exclude_special_tokens": [0, 7],
        **metadata,
    }
    for name, value in about.items():
        setattr(sae.cfg.metadata, name, value)
    sae.save_inference_model(folder)
    return folder


def reader(text: Any) -> TextReader:
    return TextReader(text, model=None, n_tokens=1000, device="cpu")


def test_what_is_observed_is_what_the_sae_does_on_the_models_activations(
    tmp_path: Path,
) -> None:
    sae = SAE.load_from_disk(save(tmp_path / "sae"))
    tokens = torch.tensor(rows_of_tokens()["tokens"])
    _, cache = tiny_model().run_with_cache(tokens, prepend_bos=False)
    kept = ~torch.isin(tokens, torch.tensor([0, 7]))
    inputs = cache[HOOK][kept]
    acts = sae.encode(inputs)
    read = reader(rows_of_tokens())
    text = read.activations(sae, "sae")
    torch.testing.assert_close(text.activations, inputs)
    assert torch.equal(text.rows, tokens)
    assert torch.equal(text.places, kept.nonzero())
    found = observe(sae, text, read.model_of(sae).tokenizer)
    assert found.n_tokens == len(inputs)
    assert found.l0 == pytest.approx((acts != 0).sum(dim=1).double().mean().item())
    torch.testing.assert_close(found.frequencies, (acts != 0).float().mean(dim=0))
    assert found.dead == int((found.frequencies == 0).sum())
    for pair in found.pairs:
        first, second = (acts[:, latent.index] for latent in pair.latents)
        assert pair.times_fired_together == int(((first > 0) & (second > 0)).sum())
        assert pair.latents[0].top_tokens[0].activation == pytest.approx(first.max().item())


def test_a_slice_of_the_rows_is_what_the_sae_was_trained_on(tmp_path: Path) -> None:
    sae = SAE.load_from_disk(save(tmp_path / "sae", seqpos_slice=(2, -1)))
    text = reader(rows_of_tokens()).activations(sae, "sae")
    assert text.rows.shape[1] == CONTEXT - 3
    assert len(text.activations) == len(text.places)


def test_the_report_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.jsonl"
    text.write_text("".join(json.dumps({"text": each}) + "\n" for each in TEXTS))
    wrong = {
        "no-model": save(tmp_path / "no-model", model_name="none"),
        "no-hook": save(tmp_path / "no-hook", hook_name="blocks.7.hook_resid_post"),
        "width": save(tmp_path / "width", d_in=5),
        "no-context": save(tmp_path / "no-context", context_size=None),
    }
    out = tmp_path / "report.html"
    arguments = ["inspect", str(save(tmp_path / "sae")), *map(str, wrong.values())]
    arguments += ["--text", str(text), "--out", str(out), "--device", "cpu"]
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 1
    shown = capsys.readouterr()
    assert "explained" in shown.out
    errors = shown.err.splitlines()
    assert len(errors) == len(wrong)
    for error, path in zip(errors, wrong.values(), strict=True):
        assert error.startswith(f"{path}: `model` should")
    html = out.read_text()
    assert html.count("<svg") == 3
    assert all(f"<th>{path}</th>" in html for path in wrong.values()), "lost what was found"


def test_a_text_without_text_is_refused(tmp_path: Path) -> None:
    sae = SAE.load_from_disk(save(tmp_path / "sae"))
    for name, content in {
        "empty.txt": b" \n",
        "other.jsonl": b'{"content": 1}\n',
        "broken.jsonl": b"{",
        "binary.txt": b"\xff\xfe\x00",
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(UserError, match="`text` should"):
            read_text(str(path))
    short = tmp_path / "short.txt"
    short.write_text("two words")
    with pytest.raises(UserError, match="`text` should fill a row"):
        reader(read_text(str(short))).activations(sae, "sae")
