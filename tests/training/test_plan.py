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
from sae_lens_c2r.training.configs import K_ANNEAL_STEPS, NORM_MULTIPLE
from sae_lens_c2r.training.costs import (
    checkpoint_bytes,
    disk_bytes,
    memory_bytes,
    place,
    weight_bytes,
)
from sae_lens_c2r.training.plan import make_plan, runner_config
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
    release = read_release(find_release("gemma-2-2b-layer-12"), overrides=changes)
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
    release = read_release(find_release("minilm-layer-3"), overrides=changes)
    plan = make_plan(release, device="cpu")
    acts = max(3 * 4 * 10 * each.d_sae for each in plan.saes.values())
    buffer = memory_bytes(plan) - 4 * disk_bytes(plan) - acts
    assert buffer == (2 * 20 + 4) * 14 * 384 * 4
    saes = sum(3 * weight_bytes(each) + 8 * each.d_sae for each in plan.saes.values())
    assert checkpoint_bytes(plan) == saes


CONFIG, FEATURES = "synthetic_model.config", RELEASE["synthetic_model"]["config"]


@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        *(
            (f"sae.{name}", {f"sae.{name}": value})
            for name, value in (
                *(("kk", 2), ("device", "cuda"), ("metadata", {}), ("matryoshka_widths", [4])),
                *(("k", 0), ("k", 2000), ("k", 0.5), ("d_sae", True), ("d_sae", "256")),
                *(("d_in", 0), ("d_sae", 0), ("seed", -1), ("seed", 0.5), ("dtype", "int8")),
                *(("decoder_init_norm", math.nan), ("decoder_init_norm", math.inf)),
                *(("k_anneal_steps", 10), ("k_anneal_steps", -1), ("k_anneal_steps", True)),
            )
        ),
        *(
            (f"runner.{name}", {f"runner.{name}": value})
            for name, value in (
                *(("batchsize", 100), ("output_path", "x"), ("n_checkpoints", 3)),
                *(("lr", -1e-3), ("lr", math.nan), ("lr", "small"), ("autocast_sae", 1)),
                *(("batch_size", 0), ("dead_feature_window", -1), ("lr_warm_up_steps", -1)),
                *(("n_batches_for_norm_estimate", 0), ("lr_decay_steps", 11)),
                *(("matmul_precision", "higher"), ("max_activation_norm_multiple", 10)),
            )
        ),
        ("runner.logger.wandb", {"runner.logger": {"wandb": 1}}),
        *(
            (f"{CONFIG}.{name}", {CONFIG: {**FEATURES, name: value}})
            for name, value in (
                *(("features", 3), ("dtype", "float3"), ("seed", None), ("seed", "0")),
                ("mean_firing_magnitudes", {"start": math.nan}),
            )
        ),
        *(
            (key, {"grids": [{"id": "x", "axes": axes}], "sae": {"d_in": 8, "d_sae": 8}})
            for key, axes in (
                ("architecture", {"architecture": ["c2r"]}),
                ("architecture", {"architecture": [["topk", "topk_c2r"]]}),
                ("sae.c2r_coefficient", {"architecture": ["topk"], "c2r_coefficient": [1]}),
                ("sae.k_anneal_steps", {"architecture": ["jumprelu"], "k_anneal_steps": [1]}),
            )
        ),
    ],
)
def test_what_training_would_fail_by_is_named(
    tmp_path: Path, key: str, overrides: dict[str, Any]
) -> None:
    release = read_release(write(tmp_path), overrides=overrides)
    with pytest.raises(ReleaseError) as raised:
        make_plan(release, device="cpu")
    assert f"`{key}" in str(raised.value)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"sae.c2r_interval": 0, "sae.architecture": "topk_c2r"}, "`c2r_interval` should be"),
        ({"runner.lr_scheduler_name": "foo"}, "Unsupported scheduler: foo"),
        ({"runner.lr": 0, "runner.lr_decay_steps": 5}, "cannot make an optimizer"),
        ({"runner.lr": "1e-5"}, "YAML reads it as text: write 1.0e-05."),
        ({"runner.foo": 1}, ", matmul_precision, "),
    ],
)
def test_what_sae_lens_says_is_told(
    tmp_path: Path, overrides: dict[str, Any], says: str
) -> None:
    grids = [{"id": "{architecture}_{k}", "sae": {"architecture": "topk"}}]
    release = read_release(write(tmp_path, grids=grids), overrides=overrides)
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
        make_plan(read_release(find_release("minilm-layer-3"), overrides=changes), device="cpu")
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
    release = read_release(find_release("gemma-2-2b-layer-12"), overrides=changes)
    with pytest.raises(ReleaseError) as raised:
        make_plan(release, device="cpu")
    assert says in str(raised.value)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("runner.seqpos_slice", each) for each in ([0, 0], [128, None], [0, 9, 0], [])),
        ("runner.seqpos_slice", [None, None, -1]),
        *(("runner.store_batch_size_prompts", 0), ("runner.n_batches_in_buffer", 0)),
        *(("runner.dtype", "float3"), ("runner.dtype", "int8")),
        ("runner.max_activation_norm_multiple", 0.5),
        ("runner.model_class_name", "AutoModel"),
        ("language_model.context_size", 129),
    ],
)
def test_text_that_training_would_fail_by_is_named(key: str, value: Any) -> None:
    release = read_release(find_release("minilm-layer-3"), overrides={key: value})
    with pytest.raises(ReleaseError) as raised:
        make_plan(release, device="cpu")
    assert f"`{key}`" in str(raised.value)


def test_steps_are_counted_in_whole_numbers() -> None:
    key = "language_model.training_tokens"
    release = read_release(find_release("minilm-layer-3"), overrides={key: 2048 * 2**60 + 1})
    assert make_plan(release, device="cpu").steps == 2**60 + 1
    release = read_release(find_release("minilm-layer-3"), overrides={key: 10**400})
    with pytest.raises(ReleaseError, match="SAELens refuses the runner's fields"):
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
        read_release(find_release("gemma-2-2b-layer-12"), overrides=changes), device="cpu"
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
    release = read_release(find_release("minilm-layer-3"), overrides=changes)
    with pytest.raises(ReleaseError, match="`language_model` should be sentence-transformers"):
        make_plan(release, device="cpu")


def test_no_sae_takes_data_away_from_another() -> None:
    grids = [
        {"id": "a", "sae": {"architecture": "batchtopk", "normalize_activations": "none"}},
        {"id": "b", "sae": {"architecture": "batchtopk"}},
    ]
    release = read_release(find_release("minilm-layer-3"), overrides={"grids": grids})
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
        release = read_release(find_release("minilm-layer-3"), overrides=changes)
        plan = make_plan(release, device="cpu")
        runners.append(plan.fingerprint(plan.saes)["runner"])
    assert NORM_MULTIPLE not in runners[0]
    assert runners[1] == {**runners[0], NORM_MULTIPLE: 10}


@pytest.mark.parametrize(
    "multiple", [0.5, True, "10", float("nan"), float("inf"), 10**400, [10]]
)
def test_what_is_no_multiple_is_named(multiple: Any) -> None:
    changes = {f"runner.{NORM_MULTIPLE}": multiple}
    release = read_release(find_release("minilm-layer-3"), overrides=changes)
    with pytest.raises(ReleaseError, match=f"`runner.{NORM_MULTIPLE}`"):
        make_plan(release, device="cpu")
