"""Where SAEs lie, what they are loaded as and recorded of them, and which are alike."""

from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from sae_lens import SAE
from sae_lens.saes.sae import SAEMetadata

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.saes import encoding
from sae_lens_c2r.saes.encoding import encodes_alike
from sae_lens_c2r.saes.origins import pin
from sae_lens_c2r.saes.sae_ref import SAERef, find_saes
from tests.saes.forms import make_form


def test_norms_are_folded_on_a_cpu_whatever_the_device(tmp_path: Path) -> None:
    """On another one they would have other bits, and another hash."""
    make_form("standard").save_model(tmp_path)
    with patch.object(SAE, "load_from_disk", wraps=SAE.load_from_disk) as load:
        sae = SAERef(folder=tmp_path).load_for_inference("meta")
    assert sae.device.type == "meta"
    assert load.call_args.kwargs["device"] == "cpu"


def test_the_licence_of_a_folder_is_what_training_recorded(tmp_path: Path) -> None:
    """No card that lies about is taken for the SAE's."""
    make_form("jumprelu").save_model(tmp_path)
    (tmp_path / "README.md").write_text("---\nlicense: cc-by-nd-4.0\n---\n")
    assert pin(SAERef(folder=tmp_path))[0].license is None
    (tmp_path / "training.json").write_text('{"license": "apache-2.0"}')
    assert pin(SAERef(folder=tmp_path))[0].license == "apache-2.0"


def test_an_empty_folder_is_no_sae_though_it_has_a_release_s_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "saes").mkdir(parents=True)
    assert find_saes(["org/saes", "a"], on_error=pytest.fail) == [
        SAERef("org/saes", sae_id="a")
    ]
    errors: list[UserError] = []
    assert find_saes(["org/saes", str(tmp_path)], on_error=errors.append) == []
    assert [str(error.field) for error in errors] == ["org/saes", str(tmp_path)]


@pytest.mark.parametrize(
    ("model", "place", "taken"),
    [
        ("org/base-model", "model.layers.3", "model.layers.3"),
        ("org/model", "model.layers.3.output", "model.layers.3"),
        ("org/model", "model.layers.3.self_attn.o_proj.input", None),
        ("org/model", None, None),
        ("gpt2", "model.layers.3", None),  # which TransformerLens has
    ],
)
def test_a_model_that_transformer_lens_lacks_is_loaded_by_transformers(
    model: str, place: str | None, taken: str | None, tmp_path: Path
) -> None:
    hook_name = "blocks.3.hook_resid_post"
    about = {"model_name": model, "hook_name": hook_name, "hf_hook_name": place}
    sae = make_form("jumprelu", metadata=SAEMetadata(**about))
    sae.save_model(tmp_path)
    metadata = SAERef(folder=tmp_path).load("cpu").cfg.metadata
    assert metadata.hook_name == (taken or hook_name)
    assert metadata.model_class_name == ("AutoModelForCausalLM" if taken else None)


ENCODED = torch.arange(1.0, 65).repeat(16, 1).T  # 64 rows, each of a length of its own


def without(rows: int) -> torch.Tensor:
    """The encoding, rounded otherwise, of which so many rows are lost."""
    return torch.cat([torch.zeros(rows, 16), ENCODED[rows:] * (1 + 1e-6)])


@pytest.mark.parametrize(
    ("found", "expected", "dtype", "alike"),
    [
        (without(0), ENCODED, torch.float32, True),
        (without(3), ENCODED, torch.float32, True),
        (without(4), ENCODED, torch.float32, False),
        (ENCODED * 1.01, ENCODED, torch.float32, False),
        (ENCODED * 1.01, ENCODED, torch.bfloat16, True),
        *((ENCODED * n, ENCODED, torch.float32, False) for n in (torch.nan, torch.inf)),
        *((ENCODED * n, ENCODED * n, torch.float32, False) for n in (torch.nan, torch.inf)),
        (ENCODED[:, :-1], ENCODED, torch.float32, False),
    ],
)
def test_two_encodings_are_alike_but_for_rounding_and_very_few_rows(
    found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, alike: bool
) -> None:
    assert encodes_alike(found, expected, dtype=dtype) == alike


def test_a_process_that_dies_after_its_last_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.py"
    answer = "[open(each['outputs'], 'w') for each in json.load(sys.stdin)]"
    script.write_text(f"import json, sys; {answer}; sys.exit('free(): invalid pointer')")
    monkeypatch.setattr(encoding, "_SCRIPT", script)
    with pytest.raises(UserError, match="cannot load a folder"):
        encoding.encode_in_saelens_alone([(Path("a folder"), ENCODED)])
