"""The release that is written of what SAEs say of themselves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.finetune.release import (
    TOKENS,
    finetuning_release,
    keys_of_model,
    read_subjects,
)
from sae_lens_c2r.finetune.run import read_as_planned
from sae_lens_c2r.models.offline import MINILM
from sae_lens_c2r.releases.model import Release
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.plan import make_plan
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


def release_of(*folders: Path, **changes: Any) -> Release:
    """The release of SAEs; of a dotted key of a change `__` stands for the dot."""
    wanted = {TOKENS: 40_960_000}
    wanted |= {key.replace("__", "."): value for key, value in changes.items()}
    refs = [SAERef(folder=folder) for folder in folders]
    return finetuning_release(read_subjects(refs, wanted), wanted)


def test_an_sae_s_own_config_says_what_it_is_trained_on(plant: Plant) -> None:
    release = release_of(plant())
    read = release.language_model.model_dump(exclude_none=True)
    assert read == {**LANGUAGE_MODEL, "name": "gemma-2-2b", "training_tokens": 40_960_000}
    assert release.runner["autocast"] is True
    assert release.repo_id is None  # nobody's but who publishes it
    plan = make_plan(release, device="cpu")
    config: Any = plan.saes["a"]
    assert config.architecture() == "batchtopk_c2r"
    assert (config.k, config.topk_threshold_lr, config.c2r_coefficient) == (5, 0.05, 5.0)
    assert config.normalize_activations == "expected_average_only_in"
    assert plan.runner["lr"] == pytest.approx(1e-4)  # a third of SAELens's default
    assert plan.steps == 10_000
    assert plan.runner["exclude_special_tokens"] is True  # where it does not say
    assert (plan.runner["lr_warm_up_steps"], plan.runner["lr_decay_steps"]) == (500, 2000)


def test_what_our_training_recorded_goes_before_it(plant: Plant) -> None:
    folder = plant(model_name="/somewhere/here")
    model = {"hub_id": "org/model", "revision": "v1", "hook_name": "x", "context_size": 64}
    runner = {"lr": 9e-4, "train_batch_size_tokens": 1024, "autocast": False}
    runner |= {"lr_scheduler_name": "cosineannealing", "lr_end": 0.0, "n_restart_cycles": 2}
    settings: dict[str, Any] = {"runner": runner}
    settings["saes"] = {"layer/a": {"normalize_activations": "none"}}
    said = {"license": "mit", "source": {**model, "dataset": "org/own"}}
    release = release_of(say(folder, {**said, "sae_id": "layer/a", "settings": settings}))
    assert release.license == "mit"
    read = release.language_model
    assert (read.hub_id, read.name, read.revision) == ("org/model", None, "v1")
    assert read.dataset == "org/own"
    assert release.runner["autocast"] is False
    assert release.runner["lr"] == pytest.approx(3e-4)
    assert release.runner["lr_decay_steps"] == 8000
    # SAELens refuses a decay after a cosine that ends at 0: the old schedule is not kept.
    assert not release.runner.keys() & {"lr_scheduler_name", "lr_end", "n_restart_cycles"}
    assert release.grids[0].sae["normalize_activations"] == "none"


def test_a_sparsity_coefficient_stays_in_the_unit_that_it_was_chosen_in(plant: Plant) -> None:
    details = {"l0_coefficient": 25.0}
    folder = plant(training_architecture="jumprelu", training_architecture_details=details)
    plan = make_plan(release_of(folder), device="cpu")
    assert plan.saes["a"].normalize_activations == "none"
    assert any("`l0_coefficient` is 25.0, which is" in note for note in plan.start_notes)
    whitened = {
        "source": {},
        "runner": {},
        "saes": {"layer/a": {"normalize_activations": "covariance_whitening"}},
    }
    say(folder, {"sae_id": "layer/a", "settings": whitened})
    plan = make_plan(
        release_of(folder, language_model__hub_id="google/gemma-2-2b"), device="cpu"
    )
    assert plan.saes["a"].normalize_activations == "expected_average_only_in"


def test_texts_that_nothing_separates_stay_so(plant: Plant) -> None:
    assert release_of(plant()).runner["sequence_separator_token"] == "bos"
    folder = plant("b", sequence_separator_token=None)
    assert read_metadata(folder).sequence_separator_token is None


def test_what_is_asked_for_goes_before_both(plant: Plant) -> None:
    runner = {"runner__lr": 1e-5, "runner__lr_decay_steps": 7}
    sae = {"sae__k": 3, "sae__c2r_coefficient": 9.0}
    release = release_of(plant(), language_model__dataset="org/other", **runner, **sae)
    assert release.language_model.dataset == "org/other"
    assert (release.runner["lr"], release.runner["lr_decay_steps"]) == (1e-5, 7)
    [spec] = release.saes()
    assert (spec.fields["k"], spec.fields["c2r_coefficient"]) == (3, 9.0)
    cosine = {"runner__lr_scheduler_name": "cosineannealing", "runner__lr_end": 0.0}
    assert "lr_decay_steps" not in release_of(plant(), **cosine).runner
    old = plant("old", model_from_pretrained_kwargs={"revision": "c0ffee"})
    assert release_of(old).runner["model_from_pretrained_kwargs"] == {"revision": "c0ffee"}
    assert not release_of(old, language_model__hub_id="org/model").runner.get(
        "model_from_pretrained_kwargs"
    )
    asked = release_of(plant(), language_model__hub_id="org/model").language_model
    assert (asked.hub_id, asked.name) == ("org/model", None)
    gpt2 = {"language_model__hub_id": "openai-community/gpt2"}
    for change in ({}, gpt2):  # which is not another one
        asked = release_of(plant(model_name="gpt2-small"), **change).language_model
        assert (asked.hub_id, asked.name) == ("openai-community/gpt2", "gpt2-small")


def test_a_model_in_a_folder_is_known_by_its_package_or_as_a_folder(
    plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the README, where an SAE is trained on a model that a package holds."""
    folder = str(Path("/elsewhere", MINILM.package, "model"))
    asked = release_of(plant(model_name=folder)).language_model
    assert (asked.hub_id, asked.name) == (MINILM.hub_id, None)
    monkeypatch.chdir(tmp_path)
    mine = plant("c", model_name="models/mine")
    assert release_of(mine).language_model.hub_id == "models/mine"  # as on the Hub
    (tmp_path / "models" / "mine").mkdir(parents=True)
    assert release_of(mine).language_model.hub_id == "models/mine"
    (tmp_path / "models" / "mine" / "config.json").write_text("{}")
    here = release_of(mine).language_model
    assert (here.hub_id, here.name) == (None, "models/mine")
    with pytest.raises(UserError, match=r"`model` should be given: .* names /models/mine, whi"):
        release_of(plant("b", model_name="/models/mine"))
    for name in ("google/gemma-2-2b", "models/mine", "gpt2"):
        assert release_of(mine, **keys_of_model(name)).language_model.model == name
    here = {"language_model__hub_id": None, "language_model__name": "models/mine"}
    asked = release_of(plant("d", model_name="gpt2"), **here).language_model
    assert (asked.hub_id, asked.name, asked.revision) == (None, "models/mine", None)
    assert keys_of_model("openai-community/gpt2")["language_model.name"] == "gpt2"
    theirs = plant("e", model_name="google/gemma-2-2b")  # of which that folder is a copy
    keys = keys_of_model("models/mine")
    by_transformers = {"runner__model_class_name": "AutoModelForCausalLM"}
    with pytest.raises(UserError, match=r"a copy of it, add `--set language_model\.hub_id=goo"):
        make_plan(release_of(theirs, **keys, **by_transformers), device="cpu")
    keys["language_model.hub_id"] = "google/gemma-2-2b"
    assert make_plan(release_of(theirs, **keys, **by_transformers), device="cpu").saes
    with pytest.raises(UserError, match=r"`model` should be a folder with a config\.json, or"):
        keys_of_model("./nothing")
    release = release_of(mine, language_model__hub_id="google/gemma-2-2b")
    assert make_plan(release, device="cpu").saes


def test_what_nothing_says_is_asked_for_by_name(plant: Plant) -> None:
    options = ("model", "hook_name", "dataset", "context_size")
    keys = ("model_name", "hook_name", "dataset_path", "context_size")
    for option, key in zip(options, keys, strict=True):
        with pytest.raises(UserError, match=f"`{option}` should be given: .* does not name it"):
            release_of(plant(**{key: None}))


def test_saes_of_other_inputs_are_not_trained_together(plant: Plant) -> None:
    other = plant("b", hook_name="blocks.2.hook_resid_post")
    with pytest.raises(UserError, match=r"Found `hook_name = 'blocks\.2.*and 'blocks\.1"):
        release_of(plant(), other)


def test_saes_that_read_text_in_other_ways_are_not_either_whatever_is_given(
    plant: Plant,
) -> None:
    saes = plant("a", seqpos_slice=[4, None]), plant("b", seqpos_slice=[None])
    with pytest.raises(UserError, match=r"b differs from .*a\. Found `seqpos_slice = "):
        release_of(*saes, runner__lr=1e-4)
    release = release_of(*saes, runner__lr=1e-4, runner__seqpos_slice=[1, None])
    assert release.runner["seqpos_slice"] == [1, None]
    assert release_of(saes[1], plant("c", model_class_name="HookedTransformer")).runner


@pytest.mark.parametrize(("was", "becomes"), [(2.0, 2.0), (0.0, 5.0)])
def test_lambda_is_the_sae_s_own_unless_it_was_a_baseline(
    was: float, becomes: float, plant: Plant
) -> None:
    details = {**ABOUT["training_architecture_details"], "c2r_coefficient": was}
    sae = plant(training_architecture="batchtopk_c2r", training_architecture_details=details)
    for given, expected in (({}, becomes), ({"sae__c2r_coefficient": 0.0}, 0.0)):
        config: Any = make_plan(release_of(sae, **given), device="cpu").saes["a"]
        assert config.c2r_coefficient == expected


def test_an_sae_of_the_hub_is_named_as_a_release_does() -> None:
    for release, repo, key in (("scope", "google/scope", "release"), ("o/r", "o/r", "repo")):
        pinned = SAERef(release, None, "layer_1/a", repo, "abc")
        init = {key: release, "sae_id": "layer_1/a", "revision": "abc"}
        assert pinned.address == init


def read_metadata(folder: Path, **changes: Any) -> Any:
    """The metadata of an SAE's config once it is read as it will be trained."""
    sae = SAERef(folder=folder).load("cpu")
    plan = make_plan(release_of(folder, **changes), device="cpu")
    read_as_planned(sae, plan)
    return sae.cfg.metadata


def test_both_are_measured_on_what_is_trained_on(plant: Plant) -> None:
    """Options and defaults of the plan hold for the SAE before fine-tuning, too."""
    folder = plant(model_name=None, hook_head_index=2)
    read = read_metadata(folder, language_model__hub_id="EleutherAI/pythia-70m")
    assert (read.model_name, read.hook_name) == ("EleutherAI/pythia-70m", ABOUT["hook_name"])
    assert (read.context_size, read.prepend_bos, read.hook_head_index) == (64, True, 2)
    assert read.exclude_special_tokens is True
    changes = {
        "runner__model_class_name": "AutoModelForCausalLM",
        "runner__exclude_special_tokens": False,
        "runner__prepend_bos": False,
        "language_model__hub_id": "org/model",
        "language_model__hook_name": "layers.1",
        "language_model__context_size": 32,
        "language_model__revision": "v1",
    }
    folder = plant(hook_name=None, model_name=None, context_size=None)
    read = read_metadata(folder, **changes)
    assert (read.model_class_name, read.model_name) == ("AutoModelForCausalLM", "org/model")
    assert (read.exclude_special_tokens, read.prepend_bos) == (False, False)
    assert (read.context_size, read.hook_name) == (32, "layers.1")
    assert read.model_from_pretrained_kwargs == {"revision": "v1"}


def test_an_architecture_that_nobody_knows_is_refused(plant: Plant) -> None:
    with pytest.raises(UserError, match=r"`sae.architecture` should .*batchtopk_c2r.*foo"):
        release_of(plant(), sae__architecture="foo")


def test_any_folder_s_name_becomes_an_id(plant: Plant) -> None:
    for names, sae_ids in (
        *((["a", "c"], ["a", "c"]), (["own", "others/own"], ["own", "own-2"])),
        *((["my sae {k}"], ["my-sae-k-"]), ([".hidden"], ["hidden"])),
        *((["größe"], ["gr-e"]), (["漢字"], ["sae"])),
    ):
        assert [spec.sae_id for spec in release_of(*map(plant, names)).saes()] == sae_ids


@pytest.mark.parametrize(
    "license", ["my_open_license", "llama3.1-(custom)", "[mit]", "CC BY 4.0"]
)
def test_a_licence_of_another_name_is_the_hub_s_unknown(plant: Plant, license: str) -> None:
    folder = plant()
    (folder / "README.md").write_text(f"---\nlicense: {license}\n---\n")
    assert release_of(folder).license == "unknown"
