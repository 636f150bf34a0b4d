"""Plans: every release that we ship is one that SAELens can train."""

import math
from io import StringIO
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.releases.configs import K_ANNEAL_STEPS, NORM_MULTIPLE
from sae_lens_c2r.releases.files import find_release, read_release
from sae_lens_c2r.training.plan import Plan, make_plan, runner_config
from sae_lens_c2r.training.summary import (
    checkpoint_bytes,
    disk_bytes,
    memory_bytes,
    print_plan,
    weight_bytes,
)
from tests.language_model import RUNNER
from tests.releases.test_files import SHIPPED, write

MINILM, GEMMA = "minilm-layer-3", "gemma-2-2b-layer-12"


def plan_of(release: str | Path, *only: str, **overrides: Any) -> Plan:
    """The plan of a file or of a shipped release; `__` in a changed key is its dot."""
    changes = {key.replace("__", "."): value for key, value in overrides.items()}
    read = read_release(find_release(release), overrides=changes)
    return make_plan(read, device="cpu", only=only)


@pytest.fixture(scope="module", params=SHIPPED, ids=lambda path: path.stem)
def shipped(request: pytest.FixtureRequest) -> Plan:
    """The plan of a release, found by its name."""
    assert find_release(request.param.stem) == request.param
    return plan_of(request.param.stem)


def printed(plan: Plan, **options: int) -> str:
    text = StringIO()
    print_plan(plan, Console(file=text, width=400), **options)
    return text.getvalue()


def test_shipped_releases_can_be_planned(shipped: Plan) -> None:
    assert shipped.steps > 300
    text = printed(shipped)
    assert all(sae_id in text for sae_id in shipped.saes)
    assert f"{shipped.steps:,} steps of {shipped.batch_size:,}" in text


def test_a_text_is_known_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a later command would take another folder's text for the training's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").touch()
    plan = plan_of(MINILM, language_model__dataset="mine.jsonl")
    whole = str(tmp_path / "mine.jsonl")
    assert plan.settings()["source"]["dataset"] == whole
    assert runner_config(plan, sae_ids=list(plan.saes)).dataset_path == whole
    assert plan.from_disk == [whole]


def test_the_papers_translation_of_steps(shipped: Plan) -> None:
    """Decay over the last fifth."""
    release, annealed = shipped.release, shipped.k_anneal_steps
    assert release.runner["lr_decay_steps"] == pytest.approx(shipped.steps / 5, abs=2)
    assert set(annealed.values()) <= {shipped.steps // 100}
    if release.name == GEMMA:
        assert len(annealed) == len(shipped.saes) - 4  # all but TopK
        assert shipped.norm_multiple == 10


def test_matryoshkas_sub_saes_are_the_papers(shipped: Plan) -> None:
    """1/32, 1/8, 1/4 and 1/2 of the latents, and all; of the main release, the code's."""
    for config in shipped.saes.values():
        if config.architecture() == "matryoshka_batchtopk":
            widths = [config.d_sae // part for part in (32, 8, 4, 2, 1)]
            if shipped.release.name == GEMMA:
                groups = [config.d_sae // part for part in (32, 16, 8, 4)]
                widths = [*accumulate(groups), config.d_sae]
            assert config.matryoshka_widths == widths


def test_autocast_is_obeyed() -> None:
    plan = plan_of(MINILM)
    assert runner_config(plan, sae_ids=list(plan.saes)[:1]).autocast
    assert plan.settings()["runner"]["autocast"]


def test_sizes_are_those_of_the_weights(tmp_path: Path) -> None:
    plan = plan_of(write(tmp_path), "width_1k/topk_k2")
    assert plan.steps == 10
    assert disk_bytes(plan) == 4 * (2 * 8 * 1024 + 8 + 1024)


@pytest.mark.parametrize("dtype", ["auto", None, "bfloat16"])
def test_memory_is_that_of_activations_of_the_model(dtype: str | None) -> None:
    options = {"runner__model_from_pretrained_kwargs": {"dtype": dtype}}
    difference = memory_bytes(plan_of(MINILM)) - memory_bytes(plan_of(MINILM, **options))
    assert (difference > 0) == (dtype == "bfloat16")


def test_the_buffer_counts_rows_of_the_text_and_not_passes_of_the_model() -> None:
    plan = plan_of(
        MINILM,
        language_model__context_size=16,
        runner__seqpos_slice=[1, -1],
        runner__n_batches_in_buffer=20,
        runner__store_batch_size_prompts=4,
        runner__train_batch_size_tokens=10,
    )
    acts = max(3 * 4 * 10 * each.d_sae for each in plan.saes.values())
    buffer = memory_bytes(plan) - 4 * disk_bytes(plan) - acts
    assert buffer == (2 * 20 + 4) * 14 * 384 * 4
    saes = sum(3 * weight_bytes(each) + 8 * each.d_sae for each in plan.saes.values())
    assert checkpoint_bytes(plan) == saes


MULTIPLE = f"runner.{NORM_MULTIPLE}"


def grid(**fields: Any) -> dict[str, Any]:
    return {"grids": [{"id": "x", "sae": fields}], "sae": {"d_in": 8, "d_sae": 8}}


@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        *((key, {key: value}) for key, value in (("sae.kk", 2), ("sae.d_sae", "256"))),
        *((key, {key: math.nan}) for key in ("sae.decoder_init_norm", "runner.lr", MULTIPLE)),
        *((key, {key: -1}) for key in ("sae.seed", "sae.k_anneal_steps")),
        *((key, {key: 0}) for key in ("runner.batchsize", "runner.store_batch_size_prompts")),
        *((key, {key: value}) for key, value in (("sae.k", None), (MULTIPLE, 0.5))),
        ("runner.model_class_name", {"runner.model_class_name": "AutoModel"}),
        ("c2r_interval", {"sae.c2r_interval": 0}),
        ("sae.architecture", grid(architecture="c2r")),
        ("sae.c2r_coefficient", grid(architecture="topk", c2r_coefficient=1)),
        ("sae.k_anneal_steps", grid(architecture="jumprelu", k_anneal_steps=1)),
    ],
)
def test_a_value_that_is_not_taken_is_named(key: str, overrides: dict[str, Any]) -> None:
    with pytest.raises(UserError) as raised:
        plan_of(MINILM, **overrides)
    assert f"`{key}`" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_field_goes_to_the_architectures_that_have_it(tmp_path: Path) -> None:
    architectures = ["batchtopk", "batchtopk_c2r", "standard", "matryoshka_batchtopk"]
    plan = plan_of(
        write(tmp_path),
        sae={
            **{"d_in": 8, "d_sae": 1024, "k": 2, "k_anneal_steps": 3, "c2r_coefficient": 7},
            **{"matryoshka_widths": [512, 1024], "l1_coefficient": 4},
        },
        grids=[{"id": "{architecture}", "axes": {"architecture": architectures}}],
    )
    assert plan.saes["batchtopk_c2r"].c2r_coefficient == 7  # type: ignore[attr-defined]
    assert plan.saes["standard"].l1_coefficient == 4  # type: ignore[attr-defined]
    widths = plan.saes["matryoshka_batchtopk"].matryoshka_widths  # type: ignore[attr-defined]
    assert widths == [512, 1024]
    others = {"c2r_coefficient", "matryoshka_widths", "l1_coefficient"}
    assert others.isdisjoint(plan.saes["batchtopk"].to_dict())
    assert set(plan.k_anneal_steps) == set(architectures) - {"standard"}


@pytest.mark.parametrize("mode", ["layer_norm", "constant_norm_rescale"])
def test_sae_lens_has_no_loss_for_dead_latents_of_normalized_inputs(
    tmp_path: Path, mode: str
) -> None:
    changes: dict[str, Any] = {"sae__normalize_activations": mode}
    assert plan_of(write(tmp_path), **changes).saes  # in which no latent is dead yet
    with pytest.raises(UserError, match=r"`sae\.normalize_activations` should be none"):
        plan_of(write(tmp_path), **changes, runner__dead_feature_window=9)


def test_schedules_of_the_learning_rate_do_not_overlap(tmp_path: Path) -> None:
    """SAELens would train with another one in silence."""
    changes = {"runner__lr_warm_up_steps": 4, "runner__lr_decay_steps": 6}
    assert plan_of(write(tmp_path), **changes).saes
    changes["runner__lr_decay_steps"] += 1
    with pytest.raises(UserError, match=r"lr_decay_steps` should be at most 10\. Found 11"):
        plan_of(write(tmp_path), **changes)


def test_what_changes_no_weights_is_the_same_training(tmp_path: Path) -> None:
    path = write(tmp_path)
    log = {"log_to_wandb": True, "log_weights_to_wandb": True, "wandb_project": "mine"}
    changed = plan_of(path, runner__n_eval_batches=5, runner__logger=log)
    assert changed.settings() == plan_of(path).settings()


def test_the_models_revision_is_what_sae_lens_loads() -> None:
    plan = plan_of(GEMMA, language_model__revision="abc")
    config = runner_config(plan, sae_ids=list(plan.saes))
    assert config.model_from_pretrained_kwargs == {
        "center_writing_weights": False,
        "revision": "abc",
    }
    said = {"runner__model_from_pretrained_kwargs": {"dtype": "float32"}}
    plan = plan_of(GEMMA, language_model__revision="abc", **said)
    runner_config(plan, sae_ids=list(plan.saes))
    assert plan.runner["model_from_pretrained_kwargs"] == {"dtype": "float32"}


def test_logging_is_the_releases_to_choose(tmp_path: Path) -> None:
    logger = {"wandb_project": "mine", "wandb_log_frequency": 5}
    chosen = {"runner": {**RUNNER, "logger": logger}}
    for changed, logs in (({}, False), (chosen, True)):
        plan = plan_of(write(tmp_path, **changed))
        config = runner_config(plan, sae_ids=["width_1k/topk_k2"])
        assert config.logger.log_to_wandb == logs
    assert config.logger.wandb_project == "mine"


def test_saes_are_trained_at_once_if_all_need_an_estimate_or_none(tmp_path: Path) -> None:
    """SAELens takes the batches for it out of the stream of all."""
    estimated, other = "expected_average_only_in", "none"
    modes = {"normalize_activations": [estimated, other]}
    sae = {"architecture": "batchtopk", "d_in": 8, "d_sae": 16, "k": 2}
    path = write(tmp_path, sae=sae, grids=[{"id": "{normalize_activations}", "axes": modes}])
    with pytest.raises(UserError, match=r"for all SAEs or for none.*`--only`"):
        plan_of(path)
    assert all(plan_of(path, mode).saes for mode in (estimated, other))
    modes["normalize_activations"] = [estimated, "covariance_whitening"]
    assert plan_of(path, sae__normalize_activations=estimated).saes


def test_our_own_keys_are_settings_that_a_run_has_to_share(tmp_path: Path) -> None:
    for multiple in (None, 10):
        settings = plan_of(MINILM, **{MULTIPLE: multiple}).settings()
        assert settings["runner"][NORM_MULTIPLE] == multiple
    for steps in (0, 6):
        annealed = plan_of(write(tmp_path), sae__k_anneal_steps=steps).settings()
        assert annealed["saes"]["width_1k/topk_k2"][K_ANNEAL_STEPS] == steps
        assert annealed["saes"]["width_1k/topk_k2"]["init"] is None


def test_settings_are_all_of_sae_lens_s_fields_that_have_an_effect() -> None:
    """Whether a release gives them or not, and whatever another version may add."""
    plan = plan_of(MINILM)
    settings, config = plan.settings(), runner_config(plan, sae_ids=list(plan.saes))
    apart = {"model_name", "dataset_path", "context_size", "training_tokens", "hook_names"}
    apart |= {"saes", "device", "output_path", "checkpoint_path", "save_final_checkpoint"}
    apart |= {"n_checkpoints", "resume_from_checkpoint", "logger", "prefetch_llm_batches"}
    apart |= {"n_eval_batches", "eval_batch_size_prompts", "llm_device", "act_store_device"}
    apart |= {"dataset_trust_remote_code", "dead_feature_threshold"}
    apart |= {"sae_lens_version", "sae_lens_training_version"}
    assert settings["runner"].keys() - {NORM_MULTIPLE} == config.to_dict().keys() - apart
    for sae_id, each in plan.saes.items():
        fields = each.to_dict().keys() - {"device", "metadata"}
        assert settings["saes"][sae_id].keys() == fields | {"seed", "init", K_ANNEAL_STEPS}
