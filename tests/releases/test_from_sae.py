"""A release that trains an SAE further, written from what the SAE says of itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.yaml_text import read_yaml
from sae_lens_c2r.models.offline import MINILM
from sae_lens_c2r.models.reading import Reading
from sae_lens_c2r.releases.files import read_release
from sae_lens_c2r.releases.from_sae import release_from
from sae_lens_c2r.releases.model import Release
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.plan import make_plan
from tests.command import run_command
from tests.hub.conftest import say
from tests.saes.forms import make_form
from tests.training.test_starts import LANGUAGE_MODEL

ABOUT = {
    "model_name": "gemma-2-2b",
    "hook_name": "blocks.1.hook_resid_post",
    "dataset_path": "org/text",
    "context_size": 64,
    "prepend_bos": True,
    "training_architecture": "batchtopk",
    "training_architecture_details": {"k": 5, "topk_threshold_lr": 0.05},
}
Plant = Callable[..., Path]


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Writes an SAE under a name, with what it says of its training."""

    def planted(name: str = "a", **about: Any) -> Path:
        make_form("jumprelu", d_in=8, d_sae=16, one=True).save_model(tmp_path / name)
        return say(tmp_path / name, **{**ABOUT, **about})

    return planted


def release_of(folder: Path, **changes: Any) -> Release:
    """The release of an SAE; of a dotted key of a change `__` stands for the dot."""
    asked = {key.replace("__", "."): value for key, value in changes.items()}
    found, document = release_from(
        SAERef(folder=folder), "mine", tokens=40_960_000, changes=asked
    )
    assert Release.model_validate(read_yaml(document)) == found
    return found


def test_an_sae_s_own_config_says_what_it_is_trained_on(plant: Plant) -> None:
    release = release_of(plant())
    read = release.language_model.model_dump(exclude_none=True)
    assert read == {**LANGUAGE_MODEL, "name": "gemma-2-2b", "training_tokens": 40_960_000}
    assert release.runner["autocast"] is True
    assert release.repo_id is None  # nobody's but who publishes it
    plan = make_plan(release, device="cpu")
    config: Any = plan.saes["a"]
    assert config.architecture() == "batchtopk_c2r"
    assert (config.k, config.topk_threshold_lr, config.c2r_coefficient) == (5, 0.05, 2.0)
    assert config.normalize_activations == "expected_average_only_in"
    assert plan.runner["lr"] == pytest.approx(1e-4)  # a third of SAELens's default
    assert plan.steps == 10_000
    assert plan.runner["exclude_special_tokens"] is True  # where it does not say
    assert (plan.runner["lr_warm_up_steps"], plan.runner["lr_decay_steps"]) == (500, 2000)


def test_what_our_training_recorded_goes_before_it(plant: Plant) -> None:
    runner = {"lr": 9e-4, "train_batch_size_tokens": 1024, "autocast": False}
    runner |= {"lr_scheduler_name": "cosineannealing", "lr_end": 0.0, "n_restart_cycles": 2}
    source = {"hub_id": "org/model", "revision": "v1", "dataset": "org/own", "split": "some"}
    settings: dict[str, Any] = {"runner": runner, "source": source}
    settings["saes"] = {"layer/a": {"normalize_activations": "none"}}
    folder = plant(model_name=None, dataset_path=None)
    record = {"license": "mit", "source": source, "sae_id": "layer/a", "settings": settings}
    release = release_of(say(folder, record))
    assert release.license == "mit"
    read = release.language_model
    assert (read.hub_id, read.name, read.revision) == ("org/model", None, "v1")
    assert (read.dataset, read.split) == ("org/own", "some")
    plan = make_plan(release, device="cpu")
    assert plan.runner_value("autocast") is False
    assert release.runner["lr"] == pytest.approx(3e-4)
    assert release.runner["lr_decay_steps"] == 8000
    # SAELens refuses a decay after a cosine that ends at 0: the old schedule is not kept.
    assert not release.runner.keys() & {"lr_scheduler_name", "lr_end", "n_restart_cycles"}
    assert plan.saes["a"].normalize_activations == "none"
    # Another model has no such revision, and another text no such split.
    other = {"language_model__hub_id": "org/other", "language_model__dataset": "org/text"}
    asked = release_of(folder, **other).language_model
    assert (asked.hub_id, asked.revision) == ("org/other", None)
    assert (asked.dataset, asked.split) == ("org/text", None)


def test_a_sparsity_coefficient_stays_in_the_unit_that_it_was_chosen_in(plant: Plant) -> None:
    details = {"l0_coefficient": 25.0}
    folder = plant(training_architecture="jumprelu", training_architecture_details=details)
    plan = make_plan(release_of(folder), device="cpu")
    assert plan.saes["a"].normalize_activations == "none"
    assert any("`l0_coefficient` is 25.0, which is" in note for note in plan.start_notes)
    whitened = {"saes": {"layer/a": {"normalize_activations": "covariance_whitening"}}}
    say(folder, {"sae_id": "layer/a", "settings": whitened})
    plan = make_plan(release_of(folder), device="cpu")
    assert plan.saes["a"].normalize_activations == "expected_average_only_in"


def test_it_reads_as_the_sae_does(plant: Plant) -> None:
    about = {"seqpos_slice": [4, None], "prepend_bos": False, "sequence_separator_token": None}
    about |= {"hook_head_index": 2, "max_activation_norm_multiple": 3.0}
    folder = plant(**about, model_from_pretrained_kwargs={"revision": "c0ffee", "n_devices": 2})
    plan = make_plan(release_of(folder), device="cpu")
    own = Reading.of(SAERef(folder=folder).load("cpu").cfg.metadata)
    read = Reading.of_settings(plan.settings())
    assert read.model_from_pretrained_kwargs == {"revision": "c0ffee"}  # on any machine
    as_one = {"model_from_pretrained_kwargs": read.model_from_pretrained_kwargs}
    assert read.way == own.model_copy(update=as_one).way
    assert read.text == own.text


def test_what_is_asked_for_goes_before_both(plant: Plant) -> None:
    asked = {"language_model__dataset": "org/other", "sae__k": 3, "sae__c2r_coefficient": 9.0}
    asked |= {"runner__lr": 1e-5, "runner__lr_decay_steps": 7}
    release = release_of(plant(), **asked, runner__train_batch_size_tokens=40_960)
    assert release.language_model.dataset == "org/other"
    assert (release.runner["lr"], release.runner["lr_decay_steps"]) == (1e-5, 7)
    assert release.runner["lr_warm_up_steps"] == 50  # of fewer steps
    [spec] = release.saes()
    assert (spec.fields["k"], spec.fields["c2r_coefficient"]) == (3, 9.0)


def test_a_model_is_known_by_its_id_its_package_or_as_a_folder(
    plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the README, where an SAE is trained on a model that a package holds."""
    monkeypatch.chdir(tmp_path)

    def model_of(name: str, **changes: Any) -> tuple[str | None, str | None]:
        model = release_of(plant(model_name=name), **changes).language_model
        return model.hub_id, model.name

    gpt2 = "openai-community/gpt2"
    assert model_of("gpt2-small") == (gpt2, "gpt2-small")
    assert model_of("gpt2-small", language_model__hub_id=gpt2) == (gpt2, "gpt2-small")
    assert model_of("gpt2-small", language_model__hub_id="org/model") == ("org/model", None)
    assert model_of(f"/elsewhere/{MINILM.package}/model") == (MINILM.hub_id, None)
    assert model_of("models/mine") == ("models/mine", None)  # as on the Hub
    (tmp_path / "models" / "mine").mkdir(parents=True)
    (tmp_path / "models" / "mine" / "config.json").write_text("{}")
    assert model_of("models/mine") == (None, "models/mine")
    with pytest.raises(
        UserError, match=r"`language_model\.name` should be given.* /models/no,"
    ):
        model_of("/models/no")
    # A folder that is given may hold any model: only who gives it knows.
    copy = {"language_model__name": "models/mine", "runner__model_class_name": "HookedMamba"}
    with pytest.raises(UserError, match=r"a copy of it, add `--set language_model\.hub_id=goo"):
        make_plan(release_of(plant(model_name="google/gemma-2-2b"), **copy), device="cpu")
    copy["language_model__hub_id"] = "google/gemma-2-2b"
    release = release_of(plant(model_name="google/gemma-2-2b"), **copy)
    assert make_plan(release, device="cpu").saes


@pytest.mark.parametrize("key", ["model_name", "hook_name", "dataset_path", "context_size"])
def test_what_nothing_says_is_asked_for(key: str, plant: Plant) -> None:
    with pytest.raises(UserError, match=r"`language_model\.\w+`.* should be given"):
        release_of(plant(**{key: None}))


def test_an_l0_that_nothing_says_is_asked_for(plant: Plant) -> None:
    """Measured on another text it would be another SAE's."""
    folder = plant(training_architecture_details=None)
    with pytest.raises(UserError, match=r"`sae\.k` should be given.* prints"):
        make_plan(release_of(folder), device="cpu")
    assert make_plan(release_of(folder, sae__k=4), device="cpu").saes["a"].k == 4


@pytest.mark.parametrize(("was", "becomes"), [(3.0, 3.0), (0.0, 2.0)])
def test_lambda_is_the_sae_s_own_unless_it_was_a_baseline(
    was: float, becomes: float, plant: Plant
) -> None:
    details = {**ABOUT["training_architecture_details"], "c2r_coefficient": was}
    sae = plant(training_architecture="batchtopk_c2r", training_architecture_details=details)
    for given, expected in (({}, becomes), ({"sae__c2r_coefficient": 0.0}, 0.0)):
        config: Any = make_plan(release_of(sae, **given), device="cpu").saes["a"]
        assert config.c2r_coefficient == expected


def test_registry_new_writes_it(
    plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run_command("registry", "new", "mine", "--from", plant("an sae"))
    assert ran.returncode == 0, ran.stderr
    found = read_release(tmp_path / "mine.yaml")
    assert [spec.sae_id for spec in found.saes()] == ["an-sae"]
    assert make_plan(found, device="cpu").starts.keys() == {"an-sae"}
