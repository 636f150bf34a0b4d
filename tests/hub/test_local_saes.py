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
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub import local_saes
from sae_lens_c2r.hub.allow_list import is_of_the_hub, public_evaluation, redact, refuse_secrets
from sae_lens_c2r.hub.card import card_files
from sae_lens_c2r.hub.local_saes import (
    LocalSAE,
    Submission,
    check_saes,
    find_folders,
    repo_record,
)
from sae_lens_c2r.inspection.measures import measure
from sae_lens_c2r.releases.files import find_release, read_release
from sae_lens_c2r.releases.model import FACTS, README, check_ids
from sae_lens_c2r.saes.encoding import encode_in_saelens_alone
from sae_lens_c2r.saes.hashes import sae_hashes
from sae_lens_c2r.saes.origins import pin
from sae_lens_c2r.saes.sae_ref import SAERef, find_saes
from tests.architectures.training import make_sae
from tests.evaluation.planted import plant_sae
from tests.hub.conftest import CFG, WEIGHTS, link_to_blobs, refusal, say, set_field
from tests.saes.forms import make_form
from tests.strategies import ARCHITECTURES

SECRETS = {
    "hf_" + "a1" * 17: "a Hugging Face token",
    "api_org_" + "a1" * 17: "a Hugging Face token",
    "sk-proj-" + "a1" * 12: "an OpenAI or Anthropic key",
    "sk-ant-api03-" + "a1B" * 31 + "AA": "an OpenAI or Anthropic key",
    "sk-" + "0f9e8d7c" * 4: "an OpenAI or Anthropic key",
    "AKIA" + "A1" * 8: "an AWS key",
    "ASIA" + "A1" * 8: "an AWS key",
    "ghp_" + "a1" * 18: "a GitHub token",
    "github_pat_" + "11ABCDEFG0" * 2 + "ab_" + "a1" * 29: "a GitHub token",
    "-----BEGIN RSA PRIVATE KEY-----": "a private key",
    "-----BEGIN OPENSSH PRIVATE KEY-----": "a private key",
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
    saes = find_folders(Submission([tmp_path / "saes"]))
    assert list(saes) == ["b", "layer_1/a"]
    assert saes["b"][1].steps == 3
    assert list(find_folders(Submission([folder]))) == ["a"]


NO_IDS = ["", ".", "..", "a/../b", "/a", "a/", ".git/a", "a/.git", "a\\b", "ä", "a b", "-a"]


@pytest.mark.parametrize("sae_id", [*NO_IDS, "a" * 201, "README.md", "figures/a", FACTS])
def test_an_id_is_a_folder_on_the_hub(sae_id: str) -> None:
    with pytest.raises(UserError, match="`sae_id` should be folders"):
        check_ids([sae_id])


def test_what_cannot_be_collected(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nowhere"):
        assert "There should be a folder with a cfg.json" in refused(tmp_path, tmp_path / name)
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
    [alone] = check(tmp_path / "other", snapshot / "width_80" / "a")
    assert alone.record.file_sha256 == sae.record.file_sha256
    [source] = find_saes([str(snapshot)], on_error=pytest.fail)
    loaded = source.load_for_inference("cpu")
    assert measure(loaded, "a").config.d_sae == 80
    pinned, _ = pin(source)
    assert pinned.sha256[WEIGHTS] == sae.record.file_sha256  # written anew, to the byte


@pytest.mark.parametrize("what", ["files", "a folder", "another repository's blobs"])
def test_a_link_leads_to_nothing_that_nobody_has_named(what: str, tmp_path: Path) -> None:
    """Neither out of the folder nor, in the cache, into another repository's blobs."""
    outside, root = plant_sae(tmp_path / "outside", d_in=8), tmp_path / "linked"
    if what == "files":
        (root / "b").mkdir(parents=True)
        for name in (CFG, WEIGHTS):
            (root / "b" / name).symlink_to(outside / name)
    elif what == "a folder":
        root.mkdir()
        (root / "b").symlink_to(outside)
    else:
        root = cached(tmp_path / "hub", "me/saes", "a")
        others = cached(tmp_path / "hub", "others/saes", "a") / "a" / WEIGHTS
        (root / "a" / WEIGHTS).unlink()
        (root / "a" / WEIGHTS).symlink_to(others.resolve())
    nothing = "There should be a folder with a cfg.json"  # as links to folders are not followed
    says = nothing if what == "a folder" else "A link should not lead out of"
    assert says in refused(tmp_path, root)


def test_a_checkpoints_scaling_is_folded(tmp_path: Path) -> None:
    """SAELens folds it at the end of a training; a checkpoint has it beside the weights."""
    sae = fires_at(training_sae(normalize_activations="expected_average_only_in"), 0.001)
    sae.save_model(tmp_path / "a")
    without = refused(tmp_path / "without", tmp_path / "a")
    assert "or activation_scaler.json lie beside the weights" in without
    ActivationScaler(scaling_factor=0.25).save(str(tmp_path / "a" / "activation_scaler.json"))
    [collected] = check(tmp_path / "scratch", tmp_path / "a")
    inputs = 4 * torch.randn(32, 8)
    sae.fold_activation_norm_scaling_factor(0.25)
    sae.save_inference_model(tmp_path / "folded")
    expected = SAE.load_from_disk(tmp_path / "folded").encode(inputs)
    assert (expected > 0).any()
    published = SAE.load_from_disk(collected.folder)
    assert published.cfg.normalize_activations == "none"
    torch.testing.assert_close(published.encode(inputs), expected)
    loaded = SAERef(folder=tmp_path / "a").load_for_inference("cpu")
    torch.testing.assert_close(loaded.encode(inputs), expected)


def test_a_release_gives_the_ids(tmp_path: Path, folder: Path) -> None:
    release = read_release(find_release("minilm-layer-3"))
    sae_id = "layer_3/width_24k/ort_k32"
    said = Submission([say(folder, {"sae_id": sae_id})], release=release)
    assert list(find_folders(said)) == [sae_id]
    say(folder, {"sae_id": "nothing"})
    message = refused(tmp_path, folder, release=release)
    assert "should be one of layer_3/width_24k/batchtopk_k32" in message


def test_weights_that_are_none_are_refused(tmp_path: Path, folder: Path) -> None:
    weights = folder / WEIGHTS
    whole = load_file(weights)
    for changed, reason in (
        ({"W_enc": whole["W_enc"] / 0}, "finite"),
        ({"W_dec": whole["W_dec"] * 0}, "not be 0 everywhere"),
        ({"threshold": whole["threshold"] - 1}, "not be negative"),
        ({"W_enc": whole["W_dec"].clone()}, "size mismatch for W_enc"),
        ({"other": torch.ones(3)}, "cannot be loaded"),
    ):
        save_file({**whole, **changed}, weights)
        assert reason in refused(tmp_path, folder)
    save_file(whole, weights)
    for content in (pickle.dumps(whole), weights.read_bytes()[:-1]):
        weights.write_bytes(content)
        assert "cannot be loaded" in refused(tmp_path, folder)
    sae = make_form("topk", rescale_acts_by_decoder_norm=True)
    sae.W_dec.data[3] = 0  # by whose norm SAELens divides
    sae.save_model(tmp_path / "nan")
    assert "`W_dec` should have no row of 0" in refused(tmp_path, tmp_path / "nan")


def test_words_in_the_header_of_weights_are_not_published(tmp_path: Path, folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    save_file(weights, folder / WEIGHTS, metadata={"host": "laptop"})
    [sae] = check(tmp_path / "scratch", folder)
    with safe_open(sae.folder / WEIGHTS, framework="pt") as file:
        assert not file.metadata()
    assert "laptop" not in (sae.folder / WEIGHTS).read_bytes().decode("latin-1")
    torch.testing.assert_close(load_file(sae.folder / WEIGHTS), weights)


def test_a_threshold_has_to_let_latents_fire(tmp_path: Path, folder: Path) -> None:
    training_sae().save_model(tmp_path / "new")
    assert "should have been learned" in refused(tmp_path / "1", tmp_path / "new")
    weights = load_file(folder / WEIGHTS)
    weights["threshold"] += 1e9
    save_file(weights, folder / WEIGHTS)
    assert "Is the threshold right" in refused(tmp_path / "2", folder)


def test_every_architecture_and_precision_is_published_as_it_was_trained(
    tmp_path: Path,
) -> None:
    """Weights of 16 bits are compared with care."""
    saes = {f"{name}/float32": fires_at(make_sae(name), 0.3) for name in ARCHITECTURES}
    for dtype in ("bfloat16", "float16"):
        saes[f"batchtopk_c2r/{dtype}"] = fires_at(training_sae(dtype=dtype), 0.01)
    for sae_id, each in saes.items():
        each.save_model(tmp_path / "saes" / sae_id)
    for sae in check(tmp_path / "scratch", tmp_path / "saes"):
        assert sae.record.trained_as == sae.sae_id.partition("/")[0]
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
            (lambda acts: acts / 0, otherwise),
        ]
    ):

        def spoilt(requests: Any, change: Any = change, **_: Any) -> list[torch.Tensor]:
            return [change(each) for each in encode(requests)]

        monkeypatch.setattr(local_saes, "encode_in_saelens_alone", spoilt)
        assert reason in refused(tmp_path / str(number), tmp_path / "a")


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_in_what_is_published_stops_everything(
    secret: str, tmp_path: Path, folder: Path
) -> None:
    """Its shape is told, and its line, but nothing of it."""
    kind = SECRETS[secret]
    about = repo_record(Submission([folder]), check(tmp_path / "1", folder), "me/saes")
    described = about.model_copy(update={"description": f"What\nthey are: {secret}"})
    messages = [refusal(card_files, described)]
    assert (
        f"{README} should hold no secret to be published. Found what looks like {kind}, in"
        in (messages[0])
    )
    messages.append(refusal(refuse_secrets, "a/cfg.json", json.dumps({"a": [secret]})))
    if re.fullmatch(r"\w+", secret):  # what a version or a hook's name may look like
        known = about.saes["a"].model_copy(update={"versions": {"torch": secret}})
        messages.append(refusal(card_files, about.model_copy(update={"saes": {"a": known}})))
        messages.append(refused(tmp_path / "2", say(folder, hook_name=secret)))
    for message in messages:
        assert kind in message
        assert secret[8:] not in message


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


@pytest.mark.parametrize("place", [*PLACES, "%2Fhome%2Fme", "a/b/c"])
def test_a_measurement_names_a_part_of_a_public_text_and_no_place(place: str) -> None:
    split = {"split": "train[:10%]+train[90%:]", "batch": 4}
    known = {"text": place, "model": place, "device": place, "versions": {"torch": place}}
    found = {"settings": {**split, "other": place, place: 1}, "metrics": {"l0": 1.0, place: 2}}
    if place in ("%2Fhome%2Fme", "a/b/c"):  # names no place, but fits no field
        found["metrics"].pop(place)
        known.pop("device")
    kept = public_evaluation({**known, **found}, ["a/b/c", "org/here"])
    assert kept["settings"] == {"batch": 4}  # the part of a text is as private as its name
    of_public = {**known, **found, "text": "org/text"}
    assert public_evaluation(of_public, [])["settings"] == split
    of_training = {**found, "settings": split}
    assert public_evaluation(of_training, [], "org/text")["settings"] == split
    assert public_evaluation(of_training, [])["settings"] == {"batch": 4}
    assert kept["metrics"] == {"l0": 1.0}
    assert kept["text"] == "a text that is not public"
    assert kept["model"] == "a model that is not public"
    assert place not in json.dumps(kept)


OF_FILES = ["/home/me/x", "clients/notes.jsonl", "acme.txt", "clients/Web.XML"]
OF_FILES += ["a/b.gz", "a.eml", "b.docx"]


def test_what_decides_which_model_and_text_are_read_is_published() -> None:
    said = json.loads(json.dumps(training_sae().cfg.get_inference_sae_cfg_dict()))
    part = {"dataset_split": "train[:10%]", "dataset_subset": "en", "dataset_column": "body"}
    options = {"revision": "step1000", "checkpoint_value": 1000, "n_ctx": 512}
    options |= {"load_in_4bit": True, "gguf_file": "q4.gguf", "attn_implementation": "eager"}
    options["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    said["metadata"] |= {**part, "model_from_pretrained_kwargs": options}
    said["metadata"] |= {"model_name": "gpt2", "hook_name": "model.text"}  # no file
    for text, of_it in (("org/data-v1.5.en", part), *((name, {}) for name in OF_FILES)):
        said["metadata"]["dataset_path"] = text
        kept, removed = redact(said)
        assert is_of_the_hub(text, None) == bool(of_it)
        assert kept["metadata"].get("dataset_path") == (text if of_it else None)
        assert {key: kept["metadata"].get(key) for key in part} == dict.fromkeys(part) | of_it
        assert {f"metadata.{key}" for key in part.keys() - of_it.keys()} <= {*removed}
        assert kept["metadata"]["model_from_pretrained_kwargs"] == options
        assert kept["metadata"]["hook_name"] == "model.text"
    said["metadata"] |= {"dataset_path": "org/text", "dataset_subset": "data/acme"}
    others = {"checkpoint_value": "runs/secret", "attn_implementation": "org/kernel"}
    options |= others | {"device_map": "cuda:3"}
    _, removed = redact(said)
    of_options = "metadata.model_from_pretrained_kwargs"
    in_options = {f"{of_options}.{key}" for key in (*others, "device_map")}
    assert {"metadata.dataset_subset", *in_options} <= {*removed}
    said["metadata"]["model_name"] = "/home/me/model"  # whose files are not named, either
    kept, removed = redact(said)
    assert {"metadata.model_name", f"{of_options}.gguf_file"} <= {*removed}
    assert kept["metadata"]["model_from_pretrained_kwargs"]["n_ctx"] == 512


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


@pytest.mark.parametrize("name", [*OF_FILES, "org/here"])
def test_a_measurement_names_no_file_and_no_model_of_a_disk(name: str) -> None:
    found: dict[str, Any] = {"settings": {}, "metrics": {"l0": 1.0}}
    kept = public_evaluation({"text": name, "model": name, **found}, ["org/here"])
    assert [kept[key] for key in ("text", "model")] == [
        f"a {key} that is not public" for key in ("text", "model")
    ]
    named = {"text": "org/text", "model": "gpt2"}
    assert public_evaluation({**named, **found}, ["org/here"]) == {**named, **found}


def test_training_is_told_without_this_machine(tmp_path: Path, folder: Path) -> None:
    source = {"hub_id": "google/gemma-2-2b", "dataset": "/home/me/texts"}
    record = {"description": "What they are for.", "license": "mit", "source": source}
    record |= {"samples": 2048, "steps": 2, "git_revision": "my-machine"}
    facts = of_record(tmp_path, folder, record)
    assert (facts.description, facts.license) == ("What they are for.", "mit")
    assert facts.base_models == ["google/gemma-2-2b"]
    training = facts.saes["a"]
    assert (training.samples, training.steps, training.model) == (2048, 2, "google/gemma-2-2b")
    assert not re.search("/home/me|my-machine", facts.to_json())
    with pytest.raises(UserError, match="`license`"):
        of_record(tmp_path / "again", folder, {"license": "/x"})


def write_evaluation(path: Path, sae: Path, x: float, **changed: str) -> Path:
    """Write what `evaluate` measured of an SAE, with its two hashes or others."""
    form = SAERef(folder=sae).load_for_inference("cpu")
    digests = dict(zip(("weights_sha256", "config_sha256"), sae_hashes(form), strict=True))
    core = {"core": {"metrics": {"x": x}}}
    entry = {"name": "anywhere", **digests, "evaluations": core, **changed}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"format": 2, "saes": [entry]}))
    return path


def test_what_was_measured_nearest_to_the_saes_counts_or_what_is_named(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saes = tmp_path / "saes"
    places = [Path(), saes.parent / "evaluation", saes / "evaluation", saes]
    for x, place in enumerate(places):
        if place != Path():
            write_evaluation(place / "evaluation.json", folder, x)
        [checked] = check(tmp_path / f"{x}", saes)
        found = checked.record.evaluations
        assert found["core"].metrics == {"x": x} if place != Path() else "core" not in found
    named = write_evaluation(tmp_path / "mine.json", folder, 9)
    [checked] = check(tmp_path / "named", saes, evaluation=named)
    assert checked.record.evaluations["core"].metrics == {"x": 9}


def measured_of(folder: Path, **changed: str) -> None:
    write_evaluation(folder.parents[1] / "evaluation.json", folder, 0.125, **changed)


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (lambda _: None, True),
        (lambda folder: say(folder, neuronpedia_id="gpt2/5-mine/1"), True),
        (lambda folder: set_field(folder, a_later_default=1), True),
        (lambda folder: set_field(folder, apply_b_dec_to_input=False), False),
        (lambda folder: plant_sae(folder, d_in=8, seed=5), False),
        (lambda folder: measured_of(folder, weights_sha256="0" * 64), False),
        (lambda folder: measured_of(folder, config_sha256="0" * 64), False),
    ],
)
def test_a_measurement_belongs_to_what_an_sae_computes(
    change: Any, kept: bool, tmp_path: Path, folder: Path
) -> None:
    measured_of(folder)
    change(folder)
    told: list[str] = []
    [checked] = check_saes(Submission([tmp_path / "saes"]), tmp_path, told.append)
    assert ("core" in checked.record.evaluations) == kept
    assert any("numbers of the weights alone for layer_1/a" in line for line in told) != kept


def test_no_measurement_counts_that_lies_in_the_record_of_training(
    tmp_path: Path, folder: Path
) -> None:
    """Its weights may have changed since: `evaluation.json` says which it is of."""
    say(folder, {"evaluations": {"core": {"metrics": {"l0": 2.5}}}})
    [checked] = check(tmp_path / "scratch", folder)
    assert checked.record.evaluations.keys() == {"weights"}


NAMES = {"model_name": "org/model", "dataset_path": "org/text"}


@pytest.mark.parametrize("from_disk", [None, [], [*NAMES.values()]])
@pytest.mark.parametrize("beside", ["nothing", "empty folders", "a model and a text"])
def test_names_of_the_hub_are_published_and_names_of_a_disk_are_not(
    from_disk: list[str] | None,
    beside: str,
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As training has recorded, or else by what lies here."""
    monkeypatch.chdir(tmp_path)
    for name, file in zip(NAMES.values(), ("config.json", "text.txt"), strict=True):
        if beside != "nothing":
            Path(name).mkdir(parents=True)
        if beside == "a model and a text":
            Path(name, file).write_text("{}")
    is_named = not from_disk if from_disk is not None else beside != "a model and a text"
    source = {"hub_id": "org/model", "dataset": "org/text"}
    say(folder, None if from_disk is None else {"source": source, "from_disk": from_disk})
    [sae] = check(tmp_path / "again", say(folder, **NAMES))
    config = json.loads((sae.folder / CFG).read_text())["metadata"]
    assert [config.get(key) for key in NAMES] == [
        name * is_named or None for name in NAMES.values()
    ]
    assert (sae.record.model, sae.record.dataset) == (
        ("org/model", "org/text") if is_named else (None, None)
    )
    facts = repo_record(Submission([folder]), [sae], "me/saes")
    assert facts.base_models == ["org/model"] * is_named
    assert is_named or not re.search("org/(model|text)", facts.to_json())
    [named] = check(tmp_path / "named", folder, base_model="org/base")
    assert repo_record(Submission([folder]), [named], "me/saes").base_models == ["org/base"]
