"""What is collected, refused and redacted before anything leaves this machine."""

import json
import pickle
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sae_lens import SAE
from sae_lens.registry import get_sae_training_class
from safetensors.torch import load_file, save_file

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.leaks import find_secrets
from sae_lens_c2r.hub.local.check_files import check_files
from sae_lens_c2r.hub.local.collect import LocalSAE, collect, collect_saes
from sae_lens_c2r.hub.local.redact import redact
from sae_lens_c2r.hub.names import check_id
from sae_lens_c2r.training.record import TrainingRecord
from tests.evaluation.planted import plant_sae

SECRETS = {
    "hf_" + "a1" * 17: "a Hugging Face token",
    "sk-proj-" + "a1" * 12: "an OpenAI or Anthropic key",
    "AKIA" + "A1" * 8: "an AWS key",
    "ghp_" + "a1" * 18: "a GitHub token",
    "https://me:word@example.org/": "a password in an address",
    "-----BEGIN RSA PRIVATE KEY-----": "a private key",
    '{"wandb_api_key": "' + "0a" * 20 + '"}': "a wandb key",
    "xoxb-" + "1a" * 10: "a Slack token",
    "AIza" + "a" * 35: "a Google key",
    "glpat-" + "a1" * 10: "a GitLab token",
    "pypi-" + "a1" * 20: "a registry's token",
    "ASIA" + "A1" * 8: "an AWS key",
    "eyJhbGciOiJI.eyJzdWIiOiIx": "a web token",
    "password=hunter22": "a password",
    "HF_TOKEN: abc12345": "a password",
}


def training_sae(architecture: str = "batchtopk_c2r", **options: Any) -> Any:
    sae_class, config_class = get_sae_training_class(architecture)
    torch.manual_seed(0)
    return sae_class(config_class(d_in=8, d_sae=16, k=4, **options))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return plant_sae(tmp_path / "saes" / "layer_1" / "a", d_in=8)


def local(folder: Path) -> LocalSAE:
    return LocalSAE("a", folder)


def test_saes_go_by_their_folders(tmp_path: Path, folder: Path) -> None:
    plant_sae(tmp_path / "saes" / "b", d_in=8)
    plant_sae(tmp_path / "saes" / ".training" / "step-1" / "c", d_in=8)
    (tmp_path / "saes" / "b" / "training.json").write_text('{"steps": 3}')
    found = collect([tmp_path / "saes"], converted=tmp_path / "converted")
    assert [sae.sae_id for sae in found] == ["b", "layer_1/a"]
    assert found[0].record == TrainingRecord(steps=3)
    assert [sae.sae_id for sae in collect([folder], converted=tmp_path)] == ["a"]
    assert not (tmp_path / "converted").exists()


@pytest.mark.parametrize("architecture", ["batchtopk_c2r", "topk_c2r", "ort", "batchtopk"])
def test_the_training_form_is_converted(tmp_path: Path, architecture: str) -> None:
    sae = training_sae(architecture)
    if "topk_threshold" in sae.state_dict():
        sae.topk_threshold.fill_(0.01)
    sae.save_model(tmp_path / "checkpoint")
    (found,) = collect([tmp_path / "checkpoint"], converted=tmp_path / "converted")
    (same,) = collect_saes({"checkpoint": sae}, converted=tmp_path / "objects")
    check_files(found)
    inputs = torch.randn(64, 8)
    expected = SAE.load_from_disk(same.folder).encode(inputs)
    assert (expected > 0).any()
    torch.testing.assert_close(SAE.load_from_disk(found.folder).encode(inputs), expected)
    norms = load_file(found.weights)["W_dec"].norm(dim=1)
    if "topk" not in architecture.split("_")[0] or architecture == "batchtopk":
        torch.testing.assert_close(norms, torch.ones(16))


@pytest.mark.parametrize(
    "sae_id",
    [
        "",
        ".",
        "..",
        "a/../b",
        "/a",
        "a/",
        ".git/a",
        "a/.git",
        "a\\b",
        "ä",
        "a b",
        "-a",
        "a" * 201,
        "README.md",
        "figures/a",
        "sae-lens-c2r.json",
    ],
)
def test_an_id_is_a_folder_on_the_hub(sae_id: str) -> None:
    with pytest.raises(UserError, match="An SAE's id should"):
        check_id(sae_id)


def test_what_cannot_be_collected(tmp_path: Path, folder: Path) -> None:
    def refused(*paths: Path) -> str:
        with pytest.raises(UserError) as error:
            collect(paths, converted=tmp_path / "converted")
        return str(error.value)

    (tmp_path / "empty").mkdir()
    assert "There should be a folder with a cfg.json" in refused(tmp_path / "empty")
    assert "should be a folder. Found" in refused(tmp_path / "nowhere")
    assert "ids should differ" in refused(folder, folder)
    outside = plant_sae(tmp_path / "outside", d_in=8)
    (tmp_path / "linked" / "b").mkdir(parents=True)
    for name in ("cfg.json", "sae_weights.safetensors"):
        (tmp_path / "linked" / "b" / name).symlink_to(outside / name)
    assert "A link should not lead out of" in refused(tmp_path / "linked")
    plant_sae(folder / "inner", d_in=8)
    assert "another one's folder" in refused(tmp_path / "saes")


def test_a_whole_sae_is_accepted(folder: Path) -> None:
    assert check_files(local(folder)) == json.loads((folder / "cfg.json").read_text())


def test_weights_that_are_none_are_refused(folder: Path) -> None:
    weights = folder / "sae_weights.safetensors"
    whole = load_file(weights)
    content = weights.read_bytes()

    def refused(tensors: dict[str, torch.Tensor] | bytes) -> str:
        if isinstance(tensors, bytes):
            weights.write_bytes(tensors)
        else:
            save_file(tensors, weights)
        with pytest.raises(UserError) as error:
            check_files(local(folder))
        return str(error.value)

    assert "finite" in refused({**whole, "W_enc": whole["W_enc"] / 0})
    assert "not be 0 everywhere" in refused({**whole, "W_dec": whole["W_dec"] * 0})
    assert "not be negative" in refused({**whole, "threshold": whole["threshold"] - 1})
    assert "the shape (8, 80)" in refused({**whole, "W_enc": whole["W_dec"].clone()})
    assert "Found I64" in refused({**whole, "b_dec": whole["b_dec"].long()})
    assert "should have `W_dec`" in refused({"W_enc": whole["W_enc"]})
    for wrong in (
        b"",
        pickle.dumps(whole),
        content[:-1],
        content + b"x",
        b"\xff" * 8 + content,
    ):
        assert "should be a safetensors file" in refused(wrong)
    lie = content.replace(b'"shape":[80]', b'"shape":[81]', 1)
    assert lie != content
    assert "should be a safetensors file" in refused(lie)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "should be JSON"),
        ("[]", "should be an object"),
        ("{}", "`architecture` should be one that SAELens loads"),
        ('{"architecture": "batchtopk_c2r"}', "`architecture` should be one"),
        (
            '{"architecture": "jumprelu", "d_in": "8", "d_sae": 80}',
            "`d_in` should be a positive",
        ),
    ],
)
def test_a_config_that_is_none_is_refused(folder: Path, content: str, reason: str) -> None:
    (folder / "cfg.json").write_text(content)
    with pytest.raises(UserError, match=reason):
        check_files(local(folder))


@pytest.mark.parametrize(("secret", "kind"), SECRETS.items())
def test_a_secret_stops_everything(folder: Path, secret: str, kind: str) -> None:
    config = json.loads((folder / "cfg.json").read_text())
    config["metadata"]["note"] = secret
    whole = (folder / "cfg.json").read_text()
    (folder / "cfg.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=kind) as error:
        check_files(local(folder))
    assert secret not in str(error.value)
    (folder / "cfg.json").write_text(whole)
    weights = load_file(folder / "sae_weights.safetensors")
    save_file(weights, folder / "sae_weights.safetensors", metadata={"note": secret})
    with pytest.raises(UserError, match=kind):
        check_files(local(folder))


@pytest.mark.parametrize(
    ("spelled", "kind"),
    [
        ('"\\u0068f_a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1"', "a Hugging Face token"),
        ('"https:\\/\\/me:secretpw@host\\/x"', "a password in an address"),
    ],
)
def test_a_secret_is_found_however_json_spells_it(
    folder: Path, spelled: str, kind: str
) -> None:
    path = folder / "cfg.json"
    path.write_text(path.read_text().replace("{", f'{{"note": {spelled}, ', 1))
    with pytest.raises(UserError, match=f"what looks like {kind}"):
        check_files(LocalSAE("a", folder))


def test_a_header_with_words_is_refused(folder: Path) -> None:
    weights = load_file(folder / "sae_weights.safetensors")
    save_file(weights, folder / "sae_weights.safetensors", metadata={"host": "laptop"})
    with pytest.raises(UserError, match=r"should have no metadata in its header.*host"):
        check_files(local(folder))


def test_what_is_no_secret_is_none() -> None:
    sha = "0123456789abcdef0123456789abcdef01234567"
    harmless = f"blocks.12.hook_resid_post {sha} google/gemma-2-2b https://arxiv.org/abs/1 hf_"
    assert not list(find_secrets(harmless))


def test_only_what_is_needed_leaves() -> None:
    config = training_sae().cfg
    config.metadata.model_name = "google/gemma-2-2b"
    config.metadata.hook_name = "blocks.12.hook_resid_post"
    config.metadata.dataset_path = "/home/me/data"
    config.metadata.wandb_id = "abc"
    config.metadata.model_from_pretrained_kwargs = {
        "revision": "main",
        "token": "x",
        "cache_dir": "/home/me",
        "dtype": "C:\\me",
    }
    said = config.get_inference_sae_cfg_dict() | {"device": "cuda:3", "output_path": "/home/me"}
    said["metadata"]["training_architecture_details"] = {"k": 4, "out": "/home/me"}
    redacted = redact(json.loads(json.dumps(said)))
    assert set(redacted.removed) == {
        "output_path",
        "metadata.dataset_path",
        "metadata.wandb_id",
        "metadata.model_from_pretrained_kwargs.token",
        "metadata.model_from_pretrained_kwargs.cache_dir",
        "metadata.model_from_pretrained_kwargs.dtype",
        "metadata.training_architecture_details.out",
    }
    assert redacted.config["device"] == "cpu"
    assert redacted.config["metadata"]["model_name"] == "google/gemma-2-2b"
    assert redacted.config["metadata"]["training_architecture_details"] == {"k": 4}


TEXTS = st.text(string.printable, max_size=20) | st.sampled_from(
    ["/home/me/x", "~/x", "../x", "C:\\x", "https://example.org/x", "\\\\host\\x"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(
    ["model_name", "dataset_path", "hook_name", "wandb_id", "cache_dir", "token", "l0", "a/b"]
)


@given(
    metadata=st.dictionaries(KEYS, VALUES),
    options=st.dictionaries(st.sampled_from(["revision", "token", "dtype"]), VALUES),
    foreign=st.dictionaries(st.sampled_from(["output_path", "host", "token"]), VALUES),
)
def test_a_redacted_config_loads_and_holds_nothing_that_was_removed(
    metadata: dict[str, Any], options: dict[str, Any], foreign: dict[str, Any]
) -> None:
    said = json.loads(json.dumps(training_sae().cfg.get_inference_sae_cfg_dict()))
    said["metadata"] |= {**metadata, "model_from_pretrained_kwargs": options}
    redacted = redact({**said, **foreign})
    config_class = SAE.get_sae_config_class_for_architecture(redacted.config["architecture"])
    loaded = config_class.from_dict(json.loads(json.dumps(redacted.config)))
    assert loaded.d_sae == 16
    for key in redacted.removed:
        place: Any = redacted.config
        *path, last = key.split(".") if "a/b" not in key else ["metadata", "a/b"]
        for part in path:
            place = place[part]
        assert last not in place
    text = json.dumps(redacted.config)
    for sign in ("/home/me", "~/x", "C:\\\\x", "example.org", "host"):
        assert sign not in text


LARGE = """
import resource, sys
from pathlib import Path
from sae_lens_c2r.hub.local.check_files import check_files
from sae_lens_c2r.hub.local.collect import LocalSAE
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
check_files(LocalSAE("a", Path(sys.argv[1])))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_large_file_is_checked_without_a_copy(tmp_path: Path) -> None:
    """No memory is needed but for the file itself, which is mapped and can be given back."""
    d_in, d_sae, half = 1 << 10, 1 << 17, 1 << 29
    config = {"architecture": "jumprelu", "d_in": d_in, "d_sae": d_sae}
    (tmp_path / "cfg.json").write_text(json.dumps(config))
    header = json.dumps(
        {
            "W_dec": {"dtype": "F32", "shape": [d_sae, d_in], "data_offsets": [0, half]},
            "W_enc": {"dtype": "F32", "shape": [d_in, d_sae], "data_offsets": [half, 2 * half]},
        }
    )
    with (tmp_path / "sae_weights.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header.encode())
        file.write(b"\0\0\x80\x3f")  # 1.0: the others are 0
        file.truncate(8 + len(header) + 2 * half)  # sparse: no gigabyte is written
    ran = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path)], capture_output=True, text=True, check=True
    )
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(ran.stdout) * unit < 2 * half + (100 << 20)
