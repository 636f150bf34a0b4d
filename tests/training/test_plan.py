"""Plans: every release that we ship is one that SAELens can train."""

import math
import os
from io import StringIO
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.synth_sae_bench.world import SIZES
from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.releases.files import find_release, read_release
from sae_lens_c2r.releases.model import ReleaseError
from sae_lens_c2r.training import runners
from sae_lens_c2r.training.configs import K_ANNEAL_STEPS
from sae_lens_c2r.training.costs import checkpoint_bytes, disk_bytes, memory_bytes, weight_bytes
from sae_lens_c2r.training.placement import place
from sae_lens_c2r.training.plan import make_plan, runner_config
from sae_lens_c2r.training.plan_checks import NORM_MULTIPLE
from sae_lens_c2r.training.sameness import settings_of
from sae_lens_c2r.training.summary import print_plan, size
from tests.releases.test_files import RELEASE, SHIPPED, write

BATCHTOPK = [{"id": "x", "sae": {"architecture": "batchtopk"}}]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_releases_can_be_planned(path: Path) -> None:
    plan = make_plan(read_release(path), device="cpu")
    assert plan.steps > 1000
    text = StringIO()
    print_plan(plan, Console(file=text, width=200))
    for sae_id in plan.saes:
        assert sae_id in text.getvalue()
    assert f"{plan.steps:,} steps of {plan.batch_size:,}" in text.getvalue()


def test_a_summary_for_several_processes_says_what_each_trains_and_takes() -> None:
    plan = make_plan(read_release(find_release("gemma-2-2b-layer-12")), device="cpu")
    text = StringIO()
    print_plan(plan, Console(file=text, width=400), n_ranks=8)
    shares = place(plan.saes, 8)
    lines = [line.strip().split(maxsplit=4) for line in text.getvalue().splitlines()[-9:-1]]
    for rank, (share, line) in enumerate(zip(shares, lines, strict=True)):
        memory = size(memory_bytes(plan, share)).split()
        assert line == [str(rank), str(len(share)), *memory, ", ".join(share)]
    most = max(memory_bytes(plan, share) for share in shares)
    assert f"About {size(most)} of memory a process beside the model" in text.getvalue()
    assert most < memory_bytes(plan) / 5


def test_each_process_logs_a_run_of_its_own_in_one_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = {"runner.logger": {"wandb_id": "mine", "run_name": "gemma"}}
    release = read_release(find_release("gemma-2-2b-layer-12"), changes=changes)
    plan = make_plan(release, device="cpu")
    logged = []
    monkeypatch.setenv("WANDB_RUN_GROUP", "")
    for rank, n_ranks in ((0, 1), (0, 2), (1, 2)):
        monkeypatch.setattr(runners, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(runners, "world_size", lambda n_ranks=n_ranks: n_ranks)
        monkeypatch.delenv("WANDB_RUN_GROUP", raising=False)
        logger = runner_config(plan, sae_ids=list(plan.saes)).logger
        runners.name_own_run(logger, group=plan.release.name)
        logged.append((logger.run_name, logger.wandb_id, os.environ.get("WANDB_RUN_GROUP")))
    assert logged == [
        ("gemma", "mine", None),
        ("gemma-rank-0", "mine-rank-0", "mine"),
        ("gemma-rank-1", "mine-rank-1", "mine"),
    ]


def test_shipped_releases_repeat_no_default_of_sae_lens() -> None:
    for path in SHIPPED:
        release = read_release(path)
        plan = make_plan(release, device="cpu")
        for spec in release.saes():
            defaults = type(plan.saes[spec.sae_id])(d_in=1, d_sae=1)
            for name, value in {**release.sae, **spec.fields}.items():
                # The first ones are of the ids, the last one is not SAELens's.
                if name not in ("architecture", "seed", "k", "c2r_coefficient", K_ANNEAL_STEPS):
                    assert getattr(defaults, name) != value, f"{path.stem}: {name}"


def test_the_papers_translation_of_steps() -> None:
    """Decay over the last fifth; SynthSAEBench has its own protocol, and small its own lr."""
    tuned = {f"synth-sae-bench-{name}": SIZES[name].decay for name in ("2k", "4k")}
    for path in SHIPPED:
        release = read_release(path)
        if release.name == "synth-sae-bench-16k":
            assert "lr_decay_steps" not in release.runner
            continue
        plan = make_plan(release, device="cpu")
        decay = tuned.get(release.name, 0.2)
        assert release.runner["lr_decay_steps"] == pytest.approx(decay * plan.steps, abs=2)
        annealed = plan.k_anneal_steps
        assert set(annealed.values()) <= {plan.steps // 100}, path.stem
        if release.name == "gemma-2-2b-layer-12":
            assert len(annealed) == len(plan.saes) - 4  # all but TopK
            assert plan.norm_multiple == 10


def test_sizes_are_those_of_the_weights(tmp_path: Path) -> None:
    plan = make_plan(read_release(write(tmp_path)), device="cpu", only=("width_1k/topk_k2",))
    assert plan.steps == 10
    assert disk_bytes(plan) == 4 * (2 * 8 * 1024 + 8 + 1024)
    assert memory_bytes(plan) == 4 * disk_bytes(plan) + 3 * 4 * 100 * 1024


def test_the_buffer_counts_rows_of_the_text_and_not_passes_of_the_model() -> None:
    changes = {
        "language_model.context_size": 16,
        "runner.seqpos_slice": [1, -1],
        "runner.n_batches_in_buffer": 20,
        "runner.store_batch_size_prompts": 4,
        "runner.train_batch_size_tokens": 10,
    }
    release = read_release(find_release("minilm-layer-3"), changes=changes)
    plan = make_plan(release, device="cpu")
    acts = max(3 * 4 * 10 * each.d_sae for each in plan.saes.values())
    buffer = memory_bytes(plan) - 4 * disk_bytes(plan) - acts
    assert buffer == (2 * 20 + 4) * 14 * 384 * 4
    saes = sum(3 * weight_bytes(each) + 8 * each.d_sae for each in plan.saes.values())
    assert checkpoint_bytes(plan) == saes


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"sae": {"d_in": 8, "d_sae": 8, "kk": 2}}, "`sae.kk` should be a field of SAELens's"),
        ({"sae": {"d_in": 8, "d_sae": 8, "device": "cuda"}}, "`sae.device` should be a field"),
        (
            {"grids": [{"id": "x", "sae": {"architecture": "topk", "k": 2000}}]},
            "`sae.k` should be at least 1 and at most `d_sae`. Found 2000",
        ),
        (
            {"grids": [{"id": "x", "sae": {"architecture": "batchtopk", "k": 0.5}}]},
            "`sae.k` should be at least 1 and at most `d_sae`. Found 0.5.",
        ),
        *(
            ({"sae": {"d_in": 8, "d_sae": 8, "k": 2, name: value}, "grids": BATCHTOPK}, says)
            for name, value, says in (
                (
                    "decoder_init_norm",
                    math.nan,
                    "`sae.decoder_init_norm` should be finite. Foun",
                ),
                (
                    "decoder_init_norm",
                    math.inf,
                    "`sae.decoder_init_norm` should be finite. Foun",
                ),
                (
                    "topk_threshold_lr",
                    math.nan,
                    "`sae.topk_threshold_lr` should be finite. Foun",
                ),
                ("topk_threshold_lr", math.inf, "`sae.topk_threshold_lr` should be finite."),
                ("topk_threshold_lr", -0.1, "`sae.topk_threshold_lr` should be at least 0."),
            )
        ),
        (
            {
                "synthetic_model": {
                    "training_samples": 9,
                    "config": {"mean_firing_magnitudes": {"start": math.nan}},
                }
            },
            "`synthetic_model.config.mean_firing_magnitudes` should be finite. Found {'start'",
        ),
        (
            {"runner": {"dead_feature_window": -1}},
            "`runner.dead_feature_window` should be at least 1. Found -1.",
        ),
        (
            {
                "synthetic_model": {
                    "training_samples": 1000,
                    "config": {**RELEASE["synthetic_model"]["config"], "dtype": "float3"},
                }
            },
            "`synthetic_model.config.dtype` should be a floating type, like bfloat16. Found",
        ),
        ({"runner": {"batchsize": 100}}, "`runner.batchsize` should be a field of SAELens's"),
        ({"runner": {"batchsize": 100}}, ", matmul_precision, max_activation_norm_multiple, "),
        ({"runner": {"output_path": "x"}}, "`runner.output_path` should be a field"),
        ({"runner": {"n_checkpoints": 3}}, "`runner.n_checkpoints` should be a field"),
        ({"runner": {"logger": {"wandb": 1}}}, "`runner.logger.wandb` should be a field"),
        (
            {"sae": {"d_in": 8, "d_sae": 8, "matryoshka_widths": [4, 8]}},
            "TopKC2RTrainingSAEConfig or TopKTrainingSAEConfig: apply_b_dec_to_input, ",
        ),
        (
            {"grids": [{"id": "x", "sae": {"architecture": "topk", "c2r_coefficient": 5}}]},
            "`sae.c2r_coefficient` should be a field of SAELens's TopKTrainingSAEConfig: ",
        ),
        (
            {
                "grids": [
                    {
                        "id": "{architecture}_{c2r_coefficient}",
                        "axes": {"architecture": ["topk", "topk_c2r"], "c2r_coefficient": [1]},
                    }
                ]
            },
            "`sae.c2r_coefficient` should be a field of SAELens's TopKTrainingSAEConfig: ",
        ),
        ({"sae": {"d_in": 8, "d_sae": True}}, "`sae.d_sae`: Input should be a valid integer"),
        ({"sae": {"d_in": 8, "d_sae": "256"}}, "a valid integer. Found '256'."),
        (
            {"grids": [{"id": "x", "sae": {"architecture": "topk", "k": 0.5}}]},
            "`sae.k`: Input should be a valid integer. Found 0.5.",
        ),
        (
            {"runner": {"autocast_sae": 1}},
            "`runner.autocast_sae`: Input should be a valid bool",
        ),
        ({"runner": {"lr": -1e-3}}, "`runner.lr` should be a finite number of at least 0."),
        ({"runner": {"lr": float("nan")}}, "`runner.lr` should be finite. Found nan."),
        (
            {"runner": {"lr": "1e-5"}},
            "`runner.lr`: Input should be a valid number. Found '1e-5'. YAML reads it as text: "
            "write 1.0e-05.",
        ),
        ({"runner": {"lr": "small"}}, "should be a valid number. Found 'small'."),
        (
            {"runner": {"lr_scheduler_name": "foo"}},
            "cannot make an optimizer of the runner's fields. Unsupported scheduler: foo",
        ),
        (
            {"runner": {"batch_size": 100, "lr": 0, "lr_decay_steps": 5}},
            "SAELens cannot make an optimizer of the runner's fields.",
        ),
        (
            {"grids": [{"id": "x", "sae": {"architecture": "topk", "k_anneal_steps": 1000}}]},
            "`sae.k_anneal_steps` should be a number of steps below those of the training, 10.",
        ),
        (
            {
                "sae": {"d_in": 8, "d_sae": 8},
                "grids": [
                    {"id": "x", "axes": {"architecture": ["jumprelu"], "k_anneal_steps": [2]}}
                ],
            },
            "should go with an architecture that has a `k`. Found jumprelu in x.",
        ),
        (
            {"grids": [{"id": "x", "sae": {"architecture": "standard"}}]},
            "`sae.k` should be a field of SAELens's",
        ),
        (
            {"runner": {"max_activation_norm_multiple": 10}},
            "`runner.max_activation_norm_multiple` should go with a `language_model`.",
        ),
        (
            {"grids": [{"id": "x", "axes": {"architecture": ["c2r"]}}]},
            "`architecture` should be one of",
        ),
        (
            {"grids": [{"id": "x", "sae": {"architecture": "topk_c2r", "c2r_interval": 0}}]},
            "SAELens refuses x. Parameter `c2r_interval` should be an integer of at least 1",
        ),
        (
            {"grids": [{"id": "x", "sae": {"architecture": ["topk", "topk_c2r"]}}]},
            "`architecture` should be one of",
        ),
        (
            {"synthetic_model": {"training_samples": 9, "config": {"features": 3}}},
            "`synthetic_model.config.features` should be a field",
        ),
        (
            {
                "synthetic_model": {
                    "training_samples": 1000,
                    "config": {"num_features": 16, "hidden_dim": 8},
                }
            },
            "`synthetic_model.config.seed` should be an integer, such as `seed: 0`",
        ),
        (
            {"runner": {"batch_size": 100, "lr_warm_up_steps": 4, "lr_decay_steps": 7}},
            "together at most the steps of the training, 10. Found 4 and 7.",
        ),
        (
            {"runner": {"batch_size": 100, "lr_warm_up_steps": -1}},
            "should be at least 0, and together",
        ),
        (
            {"runner": {"n_batches_for_norm_estimate": 0}},
            "`runner.n_batches_for_norm_estimate` should be at least 1. Found 0.",
        ),
    ],
)
def test_what_sae_lens_does_not_know_is_named(
    tmp_path: Path, changed: dict[str, Any], says: str
) -> None:
    release = read_release(write(tmp_path, **changed))
    with pytest.raises(ReleaseError) as raised:
        make_plan(release, device="cpu")
    assert says in str(raised.value)


def test_a_field_goes_to_the_architectures_that_have_it(tmp_path: Path) -> None:
    architectures = ["batchtopk", "batchtopk_c2r", "standard", "matryoshka_batchtopk"]
    release = write(
        tmp_path,
        sae={
            **{"d_in": 8, "d_sae": 1024, "k": 2, "k_anneal_steps": 3, "c2r_coefficient": 7},
            **{"matryoshka_widths": [512, 1024], "l1_coefficient": 4},
        },
        grids=[{"id": "{architecture}", "axes": {"architecture": architectures}}],
        runner={"batch_size": 100},
    )
    plan = make_plan(read_release(release), device="cpu")
    assert plan.saes["batchtopk_c2r"].c2r_coefficient == 7  # type: ignore[attr-defined]
    assert plan.saes["standard"].l1_coefficient == 4  # type: ignore[attr-defined]
    widths = plan.saes["matryoshka_batchtopk"].matryoshka_widths  # type: ignore[attr-defined]
    assert widths == [512, 1024]
    assert (
        plan.saes["batchtopk"]
        .to_dict()
        .keys()
        .isdisjoint({"c2r_coefficient", "matryoshka_widths", "l1_coefficient"})
    )
    assert set(plan.k_anneal_steps) == set(architectures) - {"standard"}


def test_no_message_names_what_sae_lens_keeps_for_itself() -> None:
    changes = {"runner.foo": 1}
    with pytest.raises(ReleaseError) as raised:
        make_plan(read_release(find_release("minilm-layer-3"), changes=changes), device="cpu")
    assert "train_batch_size_tokens" in str(raised.value)
    assert " _" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"hub_id": "openai-community/gpt2", "name": None},
            "`language_model.hub_id` should be a model that TransformerLens has. Found "
            "openai-community/gpt2. Write `name: gpt2` below it.",
        ),
        (
            {"hub_id": "sentence-transformers/all-MiniLM-L6-v2", "name": None},
            "Or have `transformers` load it, by `model_class_name: AutoModelForCausalLM` under",
        ),
        ({"name": "gemma-x"}, "`language_model.name` should be a model that TransformerLens"),
    ],
)
def test_a_model_that_transformer_lens_does_not_have_is_one_line(
    changes: dict[str, Any], says: str
) -> None:
    changes = {f"language_model.{key}": value for key, value in changes.items()}
    release = read_release(find_release("gemma-2-2b-layer-12"), changes=changes)
    with pytest.raises(ReleaseError) as raised:
        make_plan(release, device="cpu")
    assert says in str(raised.value)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("runner.seqpos_slice", [0, 0], "leave some of a row's 128 tokens. Found [0, 0]."),
        ("runner.seqpos_slice", [128, None], "Found [128, None]."),
        ("runner.seqpos_slice", [None, None, -1], "Found [None, None, -1]."),
        ("runner.seqpos_slice", [0, 9, 0], "Found [0, 9, 0]."),
        ("runner.seqpos_slice", [], "should be `[start, end]` or `[start, end, step]`"),
        ("runner.store_batch_size_prompts", 0, "should be at least 1. Found 0."),
        ("runner.n_batches_in_buffer", 0, "should be at least 1. Found 0."),
        ("runner.dtype", "float3", "a floating type, like bfloat16. Found 'float3'."),
        ("runner.dtype", "int8", "a floating type, like bfloat16. Found 'int8'."),
        ("language_model.context_size", 129, "at most 128, the tokens in a row of python-doc"),
    ],
)
def test_text_that_training_would_fail_by_is_named(key: str, value: Any, says: str) -> None:
    release = read_release(find_release("minilm-layer-3"), changes={key: value})
    with pytest.raises(ReleaseError) as raised:
        make_plan(release, device="cpu")
    assert f"`{key}` should" in str(raised.value)
    assert says in str(raised.value)


def test_steps_are_counted_in_whole_numbers() -> None:
    key = "language_model.training_tokens"
    release = read_release(find_release("minilm-layer-3"), changes={key: 2048 * 2**60 + 1})
    assert make_plan(release, device="cpu").steps == 2**60 + 1
    release = read_release(find_release("minilm-layer-3"), changes={key: 10**400})
    with pytest.raises(ReleaseError, match="SAELens refuses the runner's fields"):
        make_plan(release, device="cpu")


def test_an_unknown_class_of_models_is_named() -> None:
    changes = {"runner.model_class_name": "AutoModel"}
    release = read_release(find_release("minilm-layer-3"), changes=changes)
    with pytest.raises(
        ReleaseError, match=r"should be one of HookedTransformer, .*'AutoModel'"
    ):
        make_plan(release, device="cpu")


def test_one_sae_is_not_many(tmp_path: Path) -> None:
    plan = make_plan(read_release(write(tmp_path)), device="cpu", only=("width_1k/topk_k2",))
    text = StringIO()
    print_plan(plan, Console(file=text, width=200))
    assert "\n1 SAE: 10 steps of 100, 1,000 samples each." in text.getvalue()


def test_an_unknown_id_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ids of the release: width_1k.*Found 'topk'"):
        make_plan(read_release(write(tmp_path)), device="cpu", only=("topk",))


def test_the_models_revision_is_what_sae_lens_loads() -> None:
    changes = {"language_model.revision": "abc"}
    plan = make_plan(
        read_release(find_release("gemma-2-2b-layer-12"), changes=changes), device="cpu"
    )
    config = runner_config(plan, sae_ids=list(plan.saes))
    assert config.model_from_pretrained_kwargs == {  # type: ignore[union-attr]
        "center_writing_weights": False,
        "revision": "abc",
    }


def test_logging_is_the_releases_to_choose(tmp_path: Path) -> None:
    chosen = {"runner": {"logger": {"wandb_project": "mine", "wandb_log_frequency": 5}}}
    for changed, logs in (({}, False), (chosen, True)):
        plan = make_plan(read_release(write(tmp_path, **changed)), device="cpu")
        config = runner_config(plan, sae_ids=["width_1k/topk_k2"])
        assert config.logger.log_to_wandb == logs
    assert config.logger.wandb_project == "mine"


def test_matryoshkas_sub_saes_are_the_papers() -> None:
    """1/32, 1/8, 1/4 and 1/2 of the latents, and all; of the main release, the code's."""
    for path in SHIPPED:
        for config in make_plan(read_release(path), device="cpu").saes.values():
            if config.architecture() == "matryoshka_batchtopk":
                published = path.stem == "synth-sae-bench-16k"
                parts = (32, 8, 2, 1) if published else (32, 8, 4, 2, 1)
                widths = [config.d_sae // part for part in parts]
                if path.stem == "gemma-2-2b-layer-12":
                    groups = [config.d_sae // part for part in (32, 16, 8, 4)]
                    widths = [*accumulate(groups), config.d_sae]
                assert config.matryoshka_widths == widths, path.stem


@pytest.mark.parametrize(
    "changes",
    [
        {"language_model.hub_id": "foo/bar"},
        {"language_model.name": "bar"},
        {"language_model.revision": "abc"},
    ],
)
def test_the_text_that_comes_with_its_model_is_for_no_other(changes: dict[str, str]) -> None:
    release = read_release(find_release("minilm-layer-3"), changes=changes)
    with pytest.raises(ReleaseError, match="`language_model` should be sentence-transformers"):
        make_plan(release, device="cpu")


def test_no_sae_takes_data_away_from_another() -> None:
    grids = [
        {"id": "a", "sae": {"architecture": "batchtopk", "normalize_activations": "none"}},
        {"id": "b", "sae": {"architecture": "batchtopk"}},
    ]
    release = read_release(find_release("minilm-layer-3"), changes={"grids": grids})
    with pytest.raises(ReleaseError, match="would depend on those beside it"):
        make_plan(release, device="cpu")
    make_plan(release, device="cpu", only=("a",))


def test_a_plan_says_which_tokens_are_left_out_and_whose_k_falls() -> None:
    plan = make_plan(read_release(find_release("gemma-2-2b-layer-12")), device="cpu")
    text = StringIO()
    print_plan(plan, Console(file=text, width=200))
    assert "\nTokens whose norm is above 10 times the median are left out.\n" in text.getvalue()
    assert (
        "\nk falls from d_in over the first 2,441 steps of 16 SAEs: batchtopk, batchtopk_c2r, "
        "matryoshka_batchtopk, ort.\n" in text.getvalue()
    )


def test_the_norm_filter_is_one_of_the_settings_that_a_run_has_to_share() -> None:
    runners = []
    for multiple in (None, 10):
        changes = {f"runner.{NORM_MULTIPLE}": multiple}
        release = read_release(find_release("minilm-layer-3"), changes=changes)
        plan = make_plan(release, device="cpu")
        runners.append(settings_of(plan, list(plan.saes))["runner"])
    assert NORM_MULTIPLE not in runners[0]
    assert runners[1] == {**runners[0], NORM_MULTIPLE: 10}


@pytest.mark.parametrize(
    "multiple", [0.5, True, "10", float("nan"), float("inf"), 10**400, [10]]
)
def test_what_is_no_multiple_is_named(multiple: Any) -> None:
    changes = {f"runner.{NORM_MULTIPLE}": multiple}
    release = read_release(find_release("minilm-layer-3"), changes=changes)
    with pytest.raises(ReleaseError, match="should be a finite number of at least 1"):
        make_plan(release, device="cpu")
