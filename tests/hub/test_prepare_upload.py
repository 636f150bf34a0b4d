"""SAEs are seen to load in plain SAELens, and to encode as they were trained."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sae_lens import SAE
from sae_lens.training.activation_scaler import ActivationScaler
from safetensors.torch import load_file, save_file

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.evaluation.hashing import config_sha256, weights_sha256
from sae_lens_c2r.hub.local import prepare_saes as prepare_module
from sae_lens_c2r.hub.local.collect import collect
from sae_lens_c2r.hub.local.prepare_upload import prepare_upload
from sae_lens_c2r.hub.remote.refusals import explained
from sae_lens_c2r.hub.submission import Submission
from sae_lens_c2r.releases.files import find_release, read_release
from sae_lens_c2r.saes.probe import encodes_alike, probe_inputs
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.saes.saelens_alone import Encoded, encode_in_saelens_alone
from tests.architectures.training import make_sae
from tests.evaluation.planted import plant_sae
from tests.hub.test_files import SECRETS, training_sae
from tests.strategies import ARCHITECTURES


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One SAE of every architecture, in memory, prepared at once."""
    saes = {}
    for name in ARCHITECTURES:
        saes[name] = make_sae(name)
        with torch.no_grad():
            if "topk_threshold" in saes[name].state_dict():
                saes[name].topk_threshold.fill_(0.3)
            saes[name].W_dec.mul_(1.7)  # norms that are to be folded
    scratch = tmp_path_factory.mktemp("scratch")
    return saes, prepare_upload(Submission(saes), "me/saes", scratch=scratch), scratch


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_is_published_as_it_was_trained(
    trained: Any, architecture: str
) -> None:
    _, prepared, _ = trained
    sae = next(sae for sae in prepared.saes if sae.sae_id == architecture)
    assert sae.facts.trained_as == architecture
    assert (sae.feature_acts.to_dense() > 0).any()
    assert sae.facts.evaluations["weights"].metrics["composition"] > 0


def test_a_process_without_us_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another encoding than the training form's, or none at all, stops everything."""
    sae = training_sae("batchtopk_c2r")
    with torch.no_grad():
        sae.topk_threshold.fill_(0.3)
    sae.save_model(tmp_path / "a")

    def spoilt(change: Any) -> Any:
        def encode(requests: Any, **_: Any) -> list[Encoded]:
            found = encode_in_saelens_alone(requests)
            return [Encoded(change(each.feature_acts), each.sha256) for each in found]

        return encode

    for number, (change, reason) in enumerate(
        [
            (lambda acts: acts * 1.01, "in its inference form as in its training form"),
            (lambda acts: acts.roll(1, dims=1), "in its inference form as in its training"),
            (lambda acts: acts * 0, "should have latents that fire"),
            (lambda acts: acts / 0, "should encode as finite numbers"),
        ]
    ):
        monkeypatch.setattr(prepare_module, "encode_in_saelens_alone", spoilt(change))
        with pytest.raises(UserError, match=reason):
            prepare_upload(
                Submission([tmp_path / "a"]), "me/saes", scratch=tmp_path / f"scratch-{number}"
            )


def test_thresholds_that_let_nothing_fire_are_refused(tmp_path: Path) -> None:
    folder = plant_sae(tmp_path / "a", d_in=8)
    weights = load_file(folder / "sae_weights.safetensors")
    weights["threshold"] += 1e9
    save_file(weights, folder / "sae_weights.safetensors")
    with pytest.raises(UserError, match="is its threshold right"):
        prepare_upload(Submission([folder]), "me/saes", scratch=tmp_path / "scratch")


def test_what_saelens_does_not_load_is_told_in_a_line(tmp_path: Path) -> None:
    folder = plant_sae(tmp_path / "a", d_in=8)
    weights = load_file(folder / "sae_weights.safetensors")
    save_file({**weights, "other": torch.ones(3)}, folder / "sae_weights.safetensors")
    with pytest.raises(UserError, match="cannot be loaded") as error:
        prepare_upload(Submission([folder]), "me/saes", scratch=tmp_path / "scratch")
    assert "\n" not in str(error.value)


def test_a_checkpoints_scaling_is_folded(tmp_path: Path) -> None:
    """SAELens folds it at the end of a training; a checkpoint has it beside the weights."""
    sae = training_sae("batchtopk_c2r")
    with torch.no_grad():
        sae.topk_threshold.fill_(0.001)
    sae.save_model(tmp_path / "a")
    ActivationScaler(scaling_factor=0.25).save(str(tmp_path / "a" / "activation_scaler.json"))
    [collected] = collect([tmp_path / "a"], converted=tmp_path / "converted")
    inputs = 4 * torch.randn(32, 8)
    sae.fold_activation_norm_scaling_factor(0.25)
    sae.save_inference_model(tmp_path / "folded")
    expected = SAE.load_from_disk(tmp_path / "folded").encode(inputs)
    assert (expected > 0).any()
    torch.testing.assert_close(SAE.load_from_disk(collected.folder).encode(inputs), expected)
    loaded = SAERef(folder=tmp_path / "a").load_for_inference("cpu")
    torch.testing.assert_close(loaded.encode(inputs), expected)


def test_a_probe_is_of_the_saes_own_rows(tmp_path: Path) -> None:
    folder = plant_sae(tmp_path / "a", d_in=8)
    inputs = probe_inputs(folder / "sae_weights.safetensors")
    assert inputs.shape == (64, 8)
    acts = SAE.load_from_disk(folder).encode(inputs)
    assert (acts > 0).any(dim=1).sum() > 50
    assert encodes_alike(acts, acts * (1 + 1e-5))
    assert not encodes_alike(acts, acts * 1.01)
    assert not encodes_alike(acts, acts[:, :-1])


def prepare_one(tmp_path: Path, record: Any = None, **options: Any) -> Any:
    folder = plant_sae(tmp_path / "saes" / "a", d_in=8)
    if record is not None:
        (folder / "training.json").write_text(json.dumps(record))
    return prepare_upload(
        Submission([tmp_path / "saes"], **options), "me/saes", scratch=tmp_path / "scratch"
    )


def test_training_is_told_without_this_machine(tmp_path: Path) -> None:
    record = {
        "release": {
            "description": "What they are for.",
            "license": "mit",
            "language_model": {"hub_id": "google/gemma-2-2b", "dataset": "/home/me/texts"},
        },
        "samples": 2048,
        "steps": 2,
        "device": "cuda (NVIDIA H200)",
        "versions": {"torch": "2.13.0"},
        "git_revision": "abc",
        "host": "my-machine",
    }
    facts = prepare_one(tmp_path, record).content.facts
    assert (facts.description, facts.license) == ("What they are for.", "mit")
    assert facts.base_models == ["google/gemma-2-2b"]
    training = facts.saes["a"].training
    assert (training.samples, training.steps, training.model) == (2048, 2, "google/gemma-2-2b")
    assert "/home/me" not in facts.to_json()
    assert "my-machine" not in facts.to_json()


@pytest.mark.parametrize(("secret", "kind"), SECRETS.items())
def test_a_secret_in_any_file_stops_everything(tmp_path: Path, secret: str, kind: str) -> None:
    for number, record in enumerate(
        [
            {"device": secret},
            {"release": {"description": secret}},
            {"versions": {"torch": secret}},
            {"elsewhere": secret},
        ]
    ):
        with pytest.raises(UserError, match=kind) as error:
            prepare_one(tmp_path / str(number), record)
        assert secret not in str(error.value)


def test_what_evaluate_measured_is_found(tmp_path: Path) -> None:
    folder = plant_sae(tmp_path / "saes" / "a", d_in=8)
    sae = SAERef(folder=folder).load_for_inference("cpu")
    measured = {"metrics": {"composition": 0.125, "chance_composition": 0.5}}
    entry = {
        "weights_sha256": weights_sha256(sae),
        "config_sha256": config_sha256(sae.cfg),
        "name": "a",
    }
    content = {"format": 1, "saes": [{**entry, "evaluations": {"weights": measured}}]}
    path = tmp_path / "saes" / "evaluation" / "evaluation.json"
    path.parent.mkdir()
    path.write_text(json.dumps(content))
    prepared = prepare_upload(
        Submission([tmp_path / "saes"]), "me/saes", scratch=tmp_path / "scratch"
    )
    found = prepared.content.facts.saes["a"].evaluations["weights"].metrics
    assert found["composition"] == 0.125
    content["saes"][0]["evaluations"]["weights"] = {"metrics": {"composition": 0.25}}
    (tmp_path / "saes" / "evaluation.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="should not disagree"):
        prepare_upload(Submission([tmp_path / "saes"]), "me/saes", scratch=tmp_path / "again")


def test_a_release_gives_the_ids(tmp_path: Path) -> None:
    release = read_release(find_release("minilm-layer-3"))
    sae_id = "layer_3/width_24k/ort_k32"
    prepared = prepare_one(tmp_path, {"sae_id": sae_id}, release=release)
    assert list(prepared.content.facts.saes) == [sae_id]
    assert prepared.content.facts.license == "apache-2.0"
    with pytest.raises(UserError, match="should be one of layer_3/width_24k/batchtopk_k32"):
        prepare_one(tmp_path / "other", {"sae_id": "nothing"}, release=release)


def test_an_unknown_error_is_a_sentence() -> None:
    assert explained(ValueError("x\n y"), "me/saes") == "ValueError: x y"


PLACES = [
    "/home/me/x",
    "see /home/me",
    "~/x",
    "C:\\me",
    "file:/me/x",
    "s3:/b/x",
    "me@host",
]


@pytest.mark.parametrize("place", [*PLACES, "a/b/c"])
def test_no_place_of_this_machine_is_published(tmp_path: Path, place: str) -> None:
    folder = plant_sae(tmp_path / "saes" / "a", d_in=8)
    config = json.loads((folder / "cfg.json").read_text())
    config["metadata"] |= {
        "hook_name": place,
        "sequence_separator_token": place,
        "dataset_path": place,
        "training_architecture": "batchtopk",
        "training_architecture_details": {"k": 4, "host": "x", place: 1, "hook_name": place},
        "model_from_pretrained_kwargs": {"revision": place},
        "l0": float("nan"),
    }
    (folder / "cfg.json").write_text(json.dumps(config))
    record = {"device": f"cpu {place}", "versions": {place: "1", "torch": place}}
    (folder / "training.json").write_text(json.dumps(record))
    prepared = prepare_upload(Submission([folder]), "me/saes", scratch=tmp_path / "scratch")
    [sae] = prepared.saes
    sent = sae.files[0].content.decode() + prepared.content.facts.to_json()
    assert place not in sent.replace("\\\\", "\\")
    assert "NaN" not in sent
    assert '"k": 4' in sent
    assert '"host"' not in sent
    assert f"metadata.training_architecture_details.{place}" in sae.removed


@pytest.mark.parametrize("place", PLACES)
def test_a_description_that_names_a_place_is_refused(tmp_path: Path, place: str) -> None:
    record = {"release": {"description": f"Trained from {place} in a night."}}
    with pytest.raises(UserError, match="should name no path of this machine"):
        prepare_one(tmp_path, record)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_of_16_bits_are_compared_with_care(tmp_path: Path, dtype: str) -> None:
    sae = training_sae("batchtopk_c2r", dtype=dtype)
    with torch.no_grad():
        sae.topk_threshold.fill_(0.01)
        sae.W_dec.mul_(1.7)
    sae.save_model(tmp_path / "a")
    [found] = prepare_upload(
        Submission([tmp_path / "a"]), "me/saes", scratch=tmp_path / "scratch"
    ).saes
    assert (found.feature_acts.to_dense() > 0).any()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("cfg.json", "{", "should be JSON"),
        ("cfg.json", '{"architecture": ["a"]}', "`architecture` should be one"),
        ("cfg.json", "[" * 99999, "should be JSON"),
        ("training.json", '"x"', "should be an object of JSON"),
        ("training.json", '{"release": ["a"]}', "`release`"),
        ("training.json", '{"release": {"license": ["mit"]}}', "`release.license`"),
        ("training.json", '{"release": {"license": "/x"}}', "`license` should be one of the"),
        ("evaluation.json", '{"format": 1, "saes": ["x"]}', "should be written by"),
        ("evaluation.json", '{"format": 1, "saes": [{}]}', "`saes.0.weights_sha256`"),
        ("evaluation.json", "[" * 99999, "should be written by"),
    ],
)
def test_files_that_are_not_as_we_write_them_are_told(
    tmp_path: Path, name: str, content: str, reason: str
) -> None:
    folder = plant_sae(tmp_path / "a", d_in=8)
    (folder / name).write_text(content)
    with pytest.raises(UserError, match=reason) as error:
        prepare_upload(Submission([folder]), "me/saes", scratch=tmp_path / "scratch")
    assert "\n" not in str(error.value)


def test_a_threshold_that_was_never_learned_is_refused(tmp_path: Path) -> None:
    training_sae("batchtopk_c2r").save_model(tmp_path / "a")
    with pytest.raises(UserError, match="should have been learned"):
        prepare_upload(Submission([tmp_path / "a"]), "me/saes", scratch=tmp_path / "scratch")
