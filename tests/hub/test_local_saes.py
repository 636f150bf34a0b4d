"""SAEs here are found, refused, redacted, and seen to load in plain SAELens."""

import json
import pickle
import re
import string
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sae_lens import SAE
from sae_lens.training.activation_scaler import ActivationScaler
from sae_lens_c2r.hub.rules import keep_plain, redact, refuse_places, refuse_secrets
from sae_lens_c2r.hub.submission import Submission, find_folders
from safetensors.torch import load_file, save_file

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub import local_saes
from sae_lens_c2r.hub.card import card_files
from sae_lens_c2r.hub.local_saes import LocalSAE, check_saes, repo_record
from sae_lens_c2r.inspection.measures import measure
from sae_lens_c2r.releases.files import find_release, read_release
from sae_lens_c2r.releases.model import FACTS, README, check_ids
from sae_lens_c2r.saes.encoding import Encoded, encode_in_saelens_alone
from sae_lens_c2r.saes.hashes import earlier_config_hash, sae_hashes
from sae_lens_c2r.saes.origins import pin
from sae_lens_c2r.saes.sae_ref import SAERef, find_saes
from tests.architectures.training import make_sae
from tests.evaluation.planted import plant_sae
from tests.hub.conftest import CFG, RECORD, WEIGHTS, link_to_blobs, refusal, say, set_field
from tests.saes.forms import make_form
from tests.strategies import ARCHITECTURES

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
    "sk_live_" + "a1B" * 8: "a provider's key",
    "gsk_" + "a1B" * 17: "a provider's key",
    "r8_" + "a1B" * 12: "a provider's key",
    "AccountKey=" + "a1B/" * 21 + "==": "an Azure key",
    "pypi-" + "a1" * 20: "a registry's token",
    "ASIA" + "A1" * 8: "an AWS key",
    "eyJhbGciOiJI.eyJzdWIiOiIx": "a web token",
    "password=hunter22": "a password",
    "HF_TOKEN: abc12345": "a password",
    "sk-ant-api03-" + "a1B" * 31 + "AA": "an OpenAI or Anthropic key",
    "sk-" + "0f9e8d7c" * 4: "an OpenAI or Anthropic key",
    "github_pat_" + "11ABCDEFG0" * 2 + "ab_" + "a1" * 29: "a GitHub token",
    "xoxb-123456789012-1234567890123-" + "aB1" * 8: "a Slack token",
    "WANDB_API_KEY=" + "0a" * 20: "a wandb key",
    "-----BEGIN OPENSSH PRIVATE KEY-----": "a private key",
    "postgres://user:p4ss@host/db": "a password in an address",
}
PLACES = ["/home/me/x", "see /home/me", "~/x", "C:\\me", "file:/me/x", "s3:/b/x", "me@host"]
PLACES += ["1:/x", "~\\x", "me@10.0.0.5", "`/home/me`"]


def training_sae(**options: Any) -> Any:
    return make_sae("batchtopk_c2r", d_in=8, d_sae=16, **options)


def fires_at(sae: Any, threshold: float) -> Any:
    """The SAE with that threshold, if it has one, and decoder norms that are to be folded."""
    with torch.no_grad():
        if "topk_threshold" in sae.state_dict():
            sae.topk_threshold.fill_(threshold)
        sae.W_dec.mul_(1.7)
    return sae


def check(scratch: Path, *paths: Path, **said: Any) -> list[LocalSAE]:
    scratch.mkdir(exist_ok=True)
    return check_saes(Submission(list(paths), **said), scratch)


refused = partial(refusal, check)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return plant_sae(tmp_path / "saes" / "layer_1" / "a", d_in=8)


def test_saes_go_by_their_folders(tmp_path: Path, folder: Path) -> None:
    plant_sae(tmp_path / "saes" / "b", d_in=8)
    plant_sae(tmp_path / "saes" / ".training" / "step-1" / "c", d_in=8)
    say(tmp_path / "saes" / "b", {"steps": 3})
    saes = find_folders(Submission([tmp_path / "saes"]), tmp_path / "in-memory")
    assert list(saes) == ["b", "layer_1/a"]
    assert saes["b"][1].steps == 3
    assert list(find_folders(Submission([folder]), tmp_path / "in-memory")) == ["a"]
    assert not (tmp_path / "in-memory").exists()


NO_IDS = ["", ".", "..", "a/../b", "/a", "a/", ".git/a", "a/.git", "a\\b", "ä", "a b", "-a"]


@pytest.mark.parametrize("sae_id", [*NO_IDS, "a" * 201, "README.md", "figures/a", FACTS])
def test_an_id_is_a_folder_on_the_hub(sae_id: str) -> None:
    with pytest.raises(UserError, match="`sae_id` should be folders"):
        check_ids([sae_id])


def test_what_cannot_be_collected(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "There should be a folder with a cfg.json" in refused(tmp_path, tmp_path / "empty")
    assert "should be a folder. Found" in refused(tmp_path, tmp_path / "nowhere")
    assert "ids should differ" in refused(tmp_path, folder, folder)
    plant_sae(folder / "inner", d_in=8)
    assert "another SAE's folder" in refused(tmp_path, tmp_path / "saes")


def cached(cache: Path, repo_id: str, sae_id: str) -> Path:
    snapshot = cache / f"models--{repo_id.replace('/', '--')}" / "snapshots" / ("c0ffee" * 6)
    plant_sae(snapshot / sae_id, d_in=8)
    (snapshot / "README.md").write_text("---\nlicense: mit\n---\n")
    return link_to_blobs(snapshot)


def test_an_sae_in_the_cache_of_the_hub_is_one(tmp_path: Path) -> None:
    """It is inspected, started from and published, although it is made of links."""
    snapshot = cached(tmp_path / "hub", "org/saes", "width_80/a")
    [sae] = check(tmp_path / "scratch", snapshot)
    assert sae.sae_id == "width_80/a"
    assert check(tmp_path / "other", snapshot / "width_80" / "a")[0].sha256 == sae.sha256
    assert [addition.path_in_repo for addition in sae.additions()] == [
        f"width_80/a/{name}" for name in (CFG, WEIGHTS)
    ]
    [source] = find_saes([str(snapshot)], on_error=pytest.fail)
    loaded = source.load_for_inference("cpu")
    assert measure(loaded, "a").config.d_sae == 80
    pinned, _ = pin(source)
    assert pinned.license == "mit"
    assert pinned.sha256[WEIGHTS] == sae.sha256[WEIGHTS]


def test_a_link_leads_to_nothing_else(tmp_path: Path) -> None:
    """Neither out of the folder nor, in the cache, into another repository's blobs."""
    outside = plant_sae(tmp_path / "outside", d_in=8)
    linked = tmp_path / "linked" / "b"
    linked.mkdir(parents=True)
    for name in (CFG, WEIGHTS):
        (linked / name).symlink_to(outside / name)
    assert "A link should not lead out of" in refused(tmp_path, tmp_path / "linked")
    weights = cached(tmp_path / "hub", "me/saes", "a") / "a" / WEIGHTS
    others = cached(tmp_path / "hub", "others/saes", "a") / "a" / WEIGHTS
    for target in (others.resolve(), outside / WEIGHTS, weights, weights.parent / "gone"):
        weights.unlink()
        weights.symlink_to(target)
        message = refused(tmp_path, weights.parent.parent)
        assert "into the blobs of the same repository" in message


def test_a_checkpoints_scaling_is_folded(tmp_path: Path) -> None:
    """SAELens folds it at the end of a training; a checkpoint has it beside the weights."""
    sae = fires_at(training_sae(), 0.001)
    sae.save_model(tmp_path / "a")
    ActivationScaler(scaling_factor=0.25).save(str(tmp_path / "a" / "activation_scaler.json"))
    [collected] = check(tmp_path / "scratch", tmp_path / "a")
    inputs = 4 * torch.randn(32, 8)
    sae.fold_activation_norm_scaling_factor(0.25)
    sae.save_inference_model(tmp_path / "folded")
    expected = SAE.load_from_disk(tmp_path / "folded").encode(inputs)
    assert (expected > 0).any()
    torch.testing.assert_close(SAE.load_from_disk(collected.folder).encode(inputs), expected)
    loaded = SAERef(folder=tmp_path / "a").load_for_inference("cpu")
    torch.testing.assert_close(loaded.encode(inputs), expected)


def test_a_checkpoint_without_its_scaling_is_refused(tmp_path: Path, folder: Path) -> None:
    set_field(folder, normalize_activations="expected_average_only_in")
    assert "or activation_scaler.json lie beside the weights" in refused(tmp_path, folder)
    ActivationScaler(scaling_factor=0.25).save(str(folder / "activation_scaler.json"))
    [checked] = check(tmp_path / "scaled", folder)
    assert SAE.load_from_disk(checked.folder).cfg.normalize_activations == "none"


@pytest.mark.parametrize("inside", [False, True])
def test_what_sae_lens_5_saved_is_published_as_it_is_loaded(
    tmp_path: Path, inside: bool
) -> None:
    sae = make_form("topk", d_in=8, d_sae=16)
    sae.save_model(tmp_path / "old")
    activation = {"activation_fn_str": "topk", "activation_fn_kwargs": {"k": 3}}
    place = {"hook_name": "blocks.0.hook_resid_post", "model_name": "gpt2"}
    place |= {"prepend_bos": False}  # where SAELens takes True if nothing is said
    kept = {key: getattr(sae.cfg, key) for key in ("d_in", "d_sae", "dtype", "device")}
    config = {**kept, **activation, **({"metadata": place} if inside else place)}
    (tmp_path / "old" / CFG).write_text(json.dumps(config))
    [checked] = check(tmp_path / "scratch", tmp_path / "old")
    published = SAE.load_from_disk(checked.folder)
    assert ((checked.feature_acts.to_dense() > 0).sum(dim=1) <= 3).all()
    assert (published.cfg.architecture(), published.cfg.k) == ("topk", 3)
    assert published.cfg.metadata.hook_name == checked.record.hook_name == place["hook_name"]
    assert published.cfg.metadata.prepend_bos is False


def test_what_was_converted_is_named_as_it_was_given(tmp_path: Path) -> None:
    sae = fires_at(training_sae(), 0.001)
    sae.cfg.metadata.note = next(iter(SECRETS))
    sae.save_model(tmp_path / "mine")
    for saes, named in (
        ([tmp_path / "mine"], str(tmp_path / "mine" / "cfg.json")),
        ({"a": sae}, "a/cfg.json"),
    ):
        with pytest.raises(UserError, match=f"^{re.escape(named)} should hold no secret"):
            check_saes(Submission(saes), tmp_path / "scratch")


def test_a_release_gives_the_ids(tmp_path: Path, folder: Path) -> None:
    release = read_release(find_release("minilm-layer-3"))
    sae_id = "layer_3/width_24k/ort_k32"
    said = Submission([say(folder, {"sae_id": sae_id})], release=release)
    assert list(find_folders(said, tmp_path)) == [sae_id]
    say(folder, {"sae_id": "nothing"})
    message = refused(tmp_path, folder, release=release)
    assert "should be one of layer_3/width_24k/batchtopk_k32" in message


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        *((CFG, content, CFG) for content in ("{", "[]", "[" * 99999)),
        (CFG, "{}", "cannot be loaded"),
        (CFG, '{"architecture": ["a"]}', "cannot be loaded"),
        (CFG, '{"architecture": "temporal", "d_in": 8, "d_sae": 80}', "temporal"),
        (CFG, '{"architecture": "jumprelu", "d_in": "8", "d_sae": 80}', "cannot be loaded"),
        *((WEIGHTS, content, WEIGHTS) for content in ("", "\xff" * 99)),
        (WEIGHTS, "version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        (RECORD, '"x"', RECORD),
        (RECORD, '{"release": ["a"]}', "`release`"),
        (RECORD, '{"release": {"license": ["mit"]}}', "`license`"),
        ("evaluation.json", '{"format": 1, "saes": ["x"]}', "evaluation.json"),
        ("evaluation.json", '{"format": 1, "saes": [{}]}', "`saes.0`"),
        ("evaluation.json", "[" * 99999, "evaluation.json"),
    ],
)
def test_files_that_are_none_are_refused(
    tmp_path: Path, folder: Path, name: str, content: str, reason: str
) -> None:
    (folder / name).write_text(content, encoding="latin-1")
    assert reason in refused(tmp_path, folder)


def test_weights_that_are_none_are_refused(tmp_path: Path, folder: Path) -> None:
    weights = folder / WEIGHTS
    whole, content = load_file(weights), weights.read_bytes()
    for changed, reason in (
        ({"W_enc": whole["W_enc"] / 0}, "finite"),
        ({"W_dec": whole["W_dec"] * 0}, "not be 0 everywhere"),
        ({"b_enc": whole["b_enc"].long()}, "Found `b_enc`: I64"),
        ({"threshold": whole["threshold"] - 1}, "not be negative"),
        ({"W_enc": whole["W_dec"].clone()}, "size mismatch for W_enc"),
        ({"other": torch.ones(3)}, "cannot be loaded"),
    ):
        save_file({**whole, **changed}, weights)
        assert reason in refused(tmp_path, folder)
    save_file({"W_enc": whole["W_enc"]}, weights)
    assert "W_dec" in refused(tmp_path, folder)
    lie = content.replace(b'"shape":[80]', b'"shape":[81]', 1)
    assert lie != content
    save_file(whole, weights, metadata={"host": "laptop"})
    assert "Found metadata `host`" in refused(tmp_path, folder)
    for wrong in (pickle.dumps(whole), content[:-1], content + b"x", lie):
        weights.write_bytes(wrong)
        assert "should be a safetensors file" in refused(tmp_path, folder)


def test_a_threshold_has_to_let_latents_fire(tmp_path: Path, folder: Path) -> None:
    training_sae().save_model(tmp_path / "new")
    assert "should have been learned" in refused(tmp_path / "1", tmp_path / "new")
    weights = load_file(folder / WEIGHTS)
    weights["threshold"] += 1e9
    save_file(weights, folder / WEIGHTS)
    assert "Is the threshold right" in refused(tmp_path / "2", folder)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_sae_that_reconstructs_nan_is_refused(dtype: str, tmp_path: Path) -> None:
    sae = make_form("topk", dtype=dtype, rescale_acts_by_decoder_norm=True)
    sae.save_model(tmp_path / "sae")
    check(tmp_path / "checked", tmp_path / "sae")
    sae.W_dec.data[3] = 0  # by whose norm SAELens divides
    sae.save_model(tmp_path / "sae")
    said = refused(tmp_path / "checked again", tmp_path / "sae")
    assert said.startswith("sae should reconstruct numbers. Found NaN.")


def test_every_architecture_and_precision_is_published_as_it_was_trained(
    tmp_path: Path,
) -> None:
    """Weights of 16 bits are compared with care."""
    saes = {f"{name}/float32": fires_at(make_sae(name), 0.3) for name in ARCHITECTURES}
    for dtype in ("bfloat16", "float16"):
        saes[f"batchtopk_c2r/{dtype}"] = fires_at(training_sae(dtype=dtype), 0.01)
    for sae in check_saes(Submission(saes), tmp_path):
        assert sae.record.trained_as == sae.sae_id.partition("/")[0]
        assert (sae.feature_acts.to_dense() > 0).any()
        assert sae.record.evaluations["weights"].metrics["composition"] > 0
        assert ("k" in sae.record.options) == hasattr(saes[sae.sae_id].cfg, "k")


def test_a_process_without_us_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another encoding than the training form's, or none at all, stops everything."""
    fires_at(training_sae(), 0.3).save_model(tmp_path / "a")

    encode, otherwise = encode_in_saelens_alone, "the same as here once it is published"
    for number, (change, reason) in enumerate(
        [
            (lambda acts: acts * 1.01, otherwise),
            (lambda acts: acts.roll(1, dims=1), otherwise),
            (lambda acts: acts * 0, "should have latents that fire"),
            (lambda acts: acts / 0, "should encode to finite numbers"),
        ]
    ):

        def spoilt(requests: Any, change: Any = change, **_: Any) -> list[Encoded]:
            return [
                Encoded(change(each.feature_acts), each.sha256) for each in encode(requests)
            ]

        monkeypatch.setattr(local_saes, "encode_in_saelens_alone", spoilt)
        assert reason in refused(tmp_path / str(number), tmp_path / "a")


def test_a_secret_in_any_file_stops_everything(tmp_path: Path, folder: Path) -> None:
    secret, kind = next(iter(SECRETS.items()))
    release, versions = {"description": secret}, {"torch": secret}
    for said in (
        *({"device": secret}, {"release": release}, {"versions": versions}),
        {"elsewhere": secret},
    ):
        message = refused(tmp_path, say(folder, said))
        assert kind in message
        assert secret not in message
    assert kind in refused(tmp_path, say(folder, {}, note=secret))
    # However JSON spells it.
    for spelled, kind_of_it in (
        ("\\u0068f_" + "a1" * 17, kind),
        ("https:\\/\\/me:secretpw@host\\/x", "a password in an address"),
    ):
        path = say(folder, note="here") / CFG
        path.write_text(path.read_text().replace('"here"', f'"{spelled}"'))
        assert kind_of_it in refused(tmp_path, folder)


@pytest.mark.parametrize("secret", SECRETS)
def test_what_looks_like_a_secret_is_refused_with_its_place_and_without_its_middle(
    secret: str,
) -> None:
    kind = SECRETS[secret]
    for content, place in (
        (f"a line\nsee {secret} here", "line 2"),
        ({"a": {"note": f"see {secret} here"}}, "`a.note`"),
        ({"a": [{"note": secret, secret: {"x": 1}}]}, "`a.0.note`"),
    ):
        message = refusal(refuse_secrets, "cfg.json", content)
        assert all(said in message for said in ("cfg.json", kind, place, "--no-secret-check"))
        assert secret not in message
    refuse_secrets("cfg.json", secret, check=False)


@pytest.mark.parametrize(
    "harmless",
    [
        *("org/sk-wikipedia-sentences", "org/sk-wikipedia-sentences-20231101-clean"),
        *("org/sk-wikipediasentences2023", "sk-wikipediasentences20231101-clean"),
        *("Helsinki-NLP/opus-mt-sk-en", "sk-learn-20news", "password: optional", "recall@k"),
        *("api_key: none", "xoxo-valentines-letters-2023", "github_pat_issues_and_commits_23"),
        *("org/hf_transformers_embeddings_large", "bearer authentication-protocols", "hf_"),
        *("pypi-top-packages-description-2024", "a wandb run at 0123456789abcdef0123456789ab"),
        *("api_key: OPENAI_API_KEY2", "org/gsk_and_r8_models_of_2024"),
        *("0123456789abcdef0123456789abcdef01234567", "https://arxiv.org/abs/1", "precision@5"),
    ],
)
def test_what_reads_like_words_is_no_secret_and_no_address(harmless: str) -> None:
    refuse_secrets("a file", harmless)
    refuse_secrets("a file", {"dataset_path": harmless})
    refuse_places("A description", f"On {harmless}.")


def test_what_is_no_secret_may_be_let_through(tmp_path: Path, folder: Path) -> None:
    """Wherever it stands; nothing else is let through with it."""
    [secret, *_] = SECRETS
    say(folder, {"versions": {"torch": secret}}, hook_name=f"hook_{secret}", note="/home/me")
    [sae] = check(tmp_path, folder, check_secrets=False)
    assert sae.record.versions == {"torch": secret}
    assert "/home/me" not in (sae.folder / CFG).read_text()
    facts = repo_record(Submission([folder]), [sae], "me/saes")
    assert secret in card_files(facts, check_secrets=False)[README].decode()
    assert "Hugging Face token" in refusal(card_files, facts)


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
    kept, removed = redact({**said, **foreign, "device": "cuda:3"})
    config_class = SAE.get_sae_config_class_for_architecture(kept["architecture"])
    assert config_class.from_dict(json.loads(json.dumps(kept))).d_sae == 16
    assert kept["device"] == "cpu"
    for key in removed:
        place: Any = kept
        *path, last = key.split(".") if "a/b" not in key else ["metadata", "a/b"]
        for part in path:
            place = place[part]
        assert last not in place
    text = json.dumps(kept)
    for sign in ("/home/me", "~/x", "C:\\\\x", "example.org", "host"):
        assert sign not in text


def test_settings_of_a_measurement_name_a_part_of_a_split_but_no_place() -> None:
    settings = {"split": "train[:10%]+train[90%:]", "batch": 4}
    assert keep_plain({**settings, "other": "%2Fhome%2Fme"}) == settings


OF_FILES = ("clients/notes.jsonl", "acme.txt", "clients/Web.XML", "a/b.gz", "a.eml", "b.docx")


@pytest.mark.parametrize("name", OF_FILES)
def test_a_file_of_another_machine_is_not_named(
    name: str, tmp_path: Path, folder: Path
) -> None:
    say(folder, {}, dataset_path="org/data-v1.5.en", hook_name="model.text")
    [sae] = check(tmp_path / "named", folder)
    assert (sae.removed, sae.record.dataset) == ([], "org/data-v1.5.en")
    say(folder, {}, dataset_path=name, dataset_split="train")
    [sae] = check(tmp_path / "again", folder)
    metadata = json.loads((sae.folder / CFG).read_text())["metadata"]
    assert sae.removed == ["metadata.dataset_path", "metadata.dataset_split"]
    assert not metadata.keys() & {"dataset_path", "dataset_split"}
    assert sae.record.dataset is None


def test_what_decides_which_model_and_text_are_read_is_published() -> None:
    said = json.loads(json.dumps(training_sae().cfg.get_inference_sae_cfg_dict()))
    part = {"dataset_split": "train[:10%]", "dataset_subset": "en", "dataset_column": "body"}
    options = {"revision": "step1000", "checkpoint_value": 1000, "n_ctx": 512}
    options |= {"load_in_4bit": True, "gguf_file": "q4.gguf", "attn_implementation": "eager"}
    options["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    said["metadata"] |= {**part, "model_from_pretrained_kwargs": options}
    for text, of_it in (("org/text", part), ("/home/me/x", {})):
        said["metadata"]["dataset_path"] = text
        kept, removed = redact(said)
        assert {key: kept["metadata"].get(key) for key in of_it} == of_it
        assert {f"metadata.{key}" for key in part.keys() - of_it.keys()} <= {*removed}
        assert kept["metadata"]["model_from_pretrained_kwargs"] == options
    said["metadata"] |= {"dataset_path": "org/text", "dataset_subset": "data/acme"}
    others = {"checkpoint_value": "runs/secret", "attn_implementation": "org/kernel"}
    options |= others | {"device_map": "cuda:3"}
    _, removed = redact(said)
    in_options = {f"metadata.model_from_pretrained_kwargs.{key}" for key in others}
    in_options |= {"metadata.model_from_pretrained_kwargs.device_map"}
    assert {"metadata.dataset_subset", *in_options} <= {*removed}


@pytest.mark.parametrize("place", [*PLACES, "a/b/c"])
def test_no_place_of_this_machine_is_published(
    tmp_path: Path, folder: Path, place: str
) -> None:
    metadata = {
        "hook_name": place,
        "sequence_separator_token": place,
        "dataset_path": place,
        "training_architecture": "batchtopk",
        "training_architecture_details": {"k": 4, "host": "x", place: 1, "hook_name": place},
        "model_from_pretrained_kwargs": {"revision": place},
        "l0": float("nan"),
    }
    record = {"device": f"cpu {place}", "versions": {place: "1", "torch": place}}
    say(folder, record, **metadata)
    [sae] = check(tmp_path / "scratch", folder)
    told: list[str] = []
    facts = repo_record(Submission([folder]), [sae], "me/saes", told.append)
    assert [line.partition(" nobody")[0] for line in told] == ["Warning: without a licence"]
    sent = (sae.folder / CFG).read_text() + facts.to_json()
    assert place not in sent.replace("\\\\", "\\")
    assert "NaN" not in sent
    assert '"k": 4' in sent
    assert '"host"' not in sent
    assert f"metadata.training_architecture_details.{place}" in sae.removed


def of_record(tmp_path: Path, folder: Path, record: Any, **said: Any) -> Any:
    submission = Submission([say(folder, record)], **said)
    return repo_record(submission, check_saes(submission, tmp_path / "scratch"), "me/saes")


def test_training_is_told_without_this_machine(tmp_path: Path, folder: Path) -> None:
    model = {"hub_id": "google/gemma-2-2b", "dataset": "/home/me/texts"}
    about = {"description": "What they are for.", "license": "mit", "language_model": model}
    record = {"release": about, "samples": 2048, "steps": 2, "host": "my-machine"}
    facts = of_record(tmp_path, folder, record)
    assert (facts.description, facts.license) == ("What they are for.", "mit")
    assert facts.base_models == ["google/gemma-2-2b"]
    training = facts.saes["a"]
    assert (training.samples, training.steps, training.model) == (2048, 2, "google/gemma-2-2b")
    assert not re.search("/home/me|my-machine", facts.to_json())


def test_what_a_release_says_names_no_place(tmp_path: Path, folder: Path) -> None:
    for number, place in enumerate(PLACES):
        said = {"description": f"From {place} in a night."}
        with pytest.raises(UserError, match="no local path"):
            of_record(tmp_path / str(number), folder, {"release": said})
    with pytest.raises(UserError, match="`license`"):
        of_record(tmp_path, folder, {"release": {"license": "/x"}})
    harmless = (
        "Code: https://github.com/me/x, with ~50 latents and/or a precision@5 of 90%, k ~5."
    )
    facts = of_record(tmp_path / "harmless", folder, {"release": {"description": harmless}})
    assert facts.description == harmless


def test_what_evaluate_measured_is_found(tmp_path: Path, folder: Path) -> None:
    sae = SAERef(folder=folder).load_for_inference("cpu")
    measured = {"metrics": {"composition": 0.125, "chance_composition": 0.5}}
    digests = dict(zip(("weights_sha256", "config_sha256"), sae_hashes(sae), strict=True))
    entry = {"name": "a", **digests, "evaluations": {"weights": measured}}
    content = {"format": 1, "saes": [entry]}
    path = tmp_path / "saes" / "evaluation" / "evaluation.json"
    path.parent.mkdir()
    path.write_text(json.dumps(content))
    [checked] = check(tmp_path / "scratch", tmp_path / "saes")
    assert checked.record.evaluations["weights"].metrics["composition"] == 0.125
    entry["evaluations"] = {"weights": {"metrics": {"composition": 0.25}}}
    other = tmp_path / "saes" / "evaluation.json"
    other.write_text(json.dumps(content))
    message = refused(tmp_path / "again", tmp_path / "saes")
    assert f"{path} should agree with {other}. Found other numbers of weights" in message
    assert "Name one by `--evaluation`." in message
    entry["evaluations"] = {"weights": {"metrics": {"composition": 0.1250001}}}
    other.write_text(json.dumps(content))
    assert check(tmp_path / "rounded", tmp_path / "saes")


def test_of_an_sae_that_was_measured_in_two_places_its_own_counts(
    tmp_path: Path, folder: Path
) -> None:
    """As after its folder was moved, where numbers differ by rounding."""
    sae = SAERef(folder=folder).load_for_inference("cpu")
    digests = dict(zip(("weights_sha256", "config_sha256"), sae_hashes(sae), strict=True))
    saes = [
        {"name": name, **digests, "evaluations": {"core": {"metrics": {"x": x}}}}
        for name, x in ((str(folder), 0.125), ("elsewhere/a", 0.25))
    ]
    path = tmp_path / "saes" / "evaluation.json"
    path.write_text(json.dumps({"format": 1, "saes": saes}))
    [checked] = check(tmp_path / "scratch", tmp_path / "saes")
    assert checked.record.evaluations["core"].metrics == {"x": 0.125}


def test_what_was_measured_before_the_weights_changed_is_left_out(
    tmp_path: Path, folder: Path
) -> None:
    weights_sha256, _ = sae_hashes(SAERef(folder=folder).load_for_inference("cpu"))
    for digest, kept in ((weights_sha256, True), ("0" * 64, False)):
        measured = {"held_out": {"metrics": {"l0": 2.5}}}
        say(folder, {"format": 2, "weights_sha256": digest, "evaluations": measured})
        [checked] = check(tmp_path / digest, folder)
        assert ("held_out" in checked.record.evaluations) is kept
        assert checked.record.outdated == ([] if kept else ["held_out"])


NAMES = {"model_name": "org/model", "dataset_path": "org/text"}
RECORDED = {"release": {"language_model": {"hub_id": "org/model"}}}


@pytest.mark.parametrize(
    ("record", "published"),
    [
        ({**RECORDED, "from_disk": []}, 2),
        (RECORDED, 1),  # as of before: it names the model on the Hub
        ({}, 0),  # of SAELens's own runner: nothing says that they were the Hub's
        ({**RECORDED, "from_disk": [*NAMES.values()]}, 0),
    ],
)
@pytest.mark.parametrize("beside", ["nothing", "empty folders", "a model and a text"])
def test_names_of_the_hub_are_published_whatever_lies_beside_and_folders_are_not(
    record: dict[str, Any],
    published: int,
    beside: str,
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, file in zip(NAMES.values(), ("config.json", "text.txt"), strict=True):
        if beside != "nothing":
            Path(name).mkdir(parents=True)
        if beside == "a model and a text":
            Path(name, file).write_text("{}")
    if beside != "a model and a text":
        published = 0 if record.get("from_disk") else 2
    say(folder, record, **NAMES)
    [sae] = check(tmp_path / "again", folder)
    config = json.loads((sae.folder / CFG).read_text())["metadata"]
    training = sae.record
    kept = list(NAMES)[:published]
    assert [key for key in NAMES if key in config] == kept
    assert [training.model, training.dataset][:published] == list(NAMES.values())[:published]
    assert not any([training.model, training.dataset][published:])
    facts = repo_record(Submission([folder]), [sae], "me/saes")
    if record:
        assert facts.base_models == ["org/model"] * bool(published)
    named = repo_record(Submission([folder], base_model="org/base"), [sae], "me/saes")
    assert named.base_models == ["org/base"]


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (lambda _: None, True),
        (lambda folder: say(folder, neuronpedia_id="gpt2/5-mine/1"), True),
        (lambda folder: set_field(folder, a_later_default=1), True),
        (lambda folder: set_field(folder, apply_b_dec_to_input=False), False),
        (lambda folder: plant_sae(folder, d_in=8, seed=5), False),
    ],
)
@pytest.mark.parametrize(
    "digest", [sae_hashes, lambda sae: (sae_hashes(sae)[0], earlier_config_hash(sae))]
)
def test_a_measurement_belongs_to_what_an_sae_computes_and_none_is_lost_in_silence(
    change: Any, kept: bool, digest: Any, tmp_path: Path, folder: Path
) -> None:
    sae = SAERef(folder=folder).load_for_inference("cpu")
    digests = dict(zip(("weights_sha256", "config_sha256"), digest(sae), strict=True))
    entry = {"name": str(folder), **digests, "evaluations": {"core": {"metrics": {"x": 0.125}}}}
    place = tmp_path / "saes" / "evaluation.json"
    place.write_text(json.dumps({"format": 1, "later": 1, "saes": [entry]}))
    changed = change(folder) is not None
    if digest is not sae_hashes and changed:
        kept = "a_later_default" in (folder / CFG).read_text()  # of which SAELens knows nothing
    told: list[str] = []
    submission = Submission([tmp_path / "saes"])
    [checked] = check_saes(submission, tmp_path, told.append)
    assert ("core" in checked.record.evaluations) == kept
    assert any("core of layer_1/a is left out" in line for line in told) != kept
    card = card_files(repo_record(submission, [checked], "me/saes"))[README].decode()
    assert ("`layer_1/a`: core was measured with other weights" in card) != kept


@pytest.mark.parametrize(
    ("elsewhere", "outdated"), [("there", []), ("gone", ["core"]), ("gone/deeper", [])]
)
def test_what_was_measured_of_another_sae_of_the_same_id_says_nothing_of_this_one(
    elsewhere: str, outdated: list[str], tmp_path: Path, folder: Path
) -> None:
    """Only where that is gone may it be this one, which has changed and was moved."""
    other = tmp_path / elsewhere / "layer_1" / ("b" if "deeper" in elsewhere else "a")
    if elsewhere == "there":
        plant_sae(other, d_in=8, seed=5)
    entry = {"name": str(other), "weights_sha256": "0", "config_sha256": "1"}
    entry |= {"evaluations": {"core": {"metrics": {"x": 0.125}}}}
    content = {"format": 1, "saes": [entry]}
    (tmp_path / "saes" / "evaluation.json").write_text(json.dumps(content))
    [checked] = check(tmp_path / "scratch", tmp_path / "saes")
    assert checked.record.outdated == outdated
    assert folder.is_dir()


def test_another_sae_of_the_same_release_was_not_measured_in_place_of_this_one(
    tmp_path: Path, folder: Path
) -> None:
    """As the one of a release that this one was fine-tuned from."""
    entry = {"name": "a-release layer_1/a", "weights_sha256": "0", "config_sha256": "1"}
    entry |= {"evaluations": {"core": {"metrics": {"x": 0.125}}}}
    gone = {**entry, "name": str(tmp_path / "My SAEs" / "a")}
    for number, (known, outdated) in enumerate([(entry, []), (gone, ["core"])]):
        content = {"format": 1, "saes": [known]}
        (folder / "evaluation.json").write_text(json.dumps(content))
        told: list[str] = []
        [checked] = check_saes(Submission([folder]), tmp_path / f"{number}", told.append)
        assert checked.record.outdated == outdated
        is_bare = any("numbers of the weights alone for a," in line for line in told)
        assert is_bare != bool(outdated)
