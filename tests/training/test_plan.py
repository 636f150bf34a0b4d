"""Plans: every release that we ship is one that SAELens can train."""

import math
from dataclasses import replace
from datetime import date
from io import StringIO
from itertools import accumulate
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from rich.console import Console
from rich.filesize import decimal

from benchmarks.worlds.synth_sae_bench import KEPT_WORLD, SIZES
from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.yaml_text import parse_overrides
from sae_lens_c2r.releases import configs
from sae_lens_c2r.releases.configs import K_ANNEAL_STEPS, NORM_MULTIPLE
from sae_lens_c2r.releases.files import find_release, read_release
from sae_lens_c2r.training.data_parallel import place
from sae_lens_c2r.training.notes import notes_on
from sae_lens_c2r.training.plan import Plan, make_plan, runner_config
from sae_lens_c2r.training.summary import (
    checkpoint_bytes,
    disk_bytes,
    memory_bytes,
    print_plan,
    too_large,
    weight_bytes,
)
from tests.releases.test_files import RELEASE, SHIPPED, write

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
    print_plan(plan, [*notes_on(plan)], Console(file=text, width=400), **options)
    return text.getvalue()


def test_shipped_releases_can_be_planned(shipped: Plan) -> None:
    assert shipped.steps > 1000
    text = printed(shipped)
    assert all(sae_id in text for sae_id in shipped.saes)
    assert f"{shipped.steps:,} steps of {shipped.batch_size:,}" in text


def test_a_summary_for_several_processes_says_what_each_trains_and_takes() -> None:
    plan = plan_of(GEMMA)
    text = printed(plan, n_ranks=8)
    assert "\nTokens whose norm is above 10 times the median are left out.\n" in text
    assert "k falls from d_in over the first 2,441 steps of 16 SAEs: batchtopk, " in text
    shares = place(plan.saes, 8)
    lines = [line.strip().split(maxsplit=4) for line in text.splitlines()[-9:-1]]
    for rank, (share, line) in enumerate(zip(shares, lines, strict=True)):
        memory = decimal(memory_bytes(plan, share)).split()
        assert line == [str(rank), str(len(share)), *memory, ", ".join(share)]
    most = max(memory_bytes(plan, share) for share in shares)
    assert f"About {decimal(most)} of memory a process beside the model" in text
    assert most < memory_bytes(plan) / 5


@pytest.mark.parametrize(("name", "divisor"), [("4k", 4), ("2k", 8)])
def test_small_sizes_are_the_published_one_with_every_count_divided(
    name: str, divisor: int
) -> None:
    whole, part = (read_release(find_release(f"synth-sae-bench-{n}")) for n in ("16k", name))
    config = dict(whole.synthetic_model.config)
    assert config["seed"] == KEPT_WORLD
    roots = config["hierarchy"]["total_root_nodes"] // divisor
    config["hierarchy"] = {**config["hierarchy"], "total_root_nodes": roots}
    counts = ("num_features", "hidden_dim")
    divided = {count: config[count] // divisor for count in counts}
    assert part.synthetic_model.config == {**config, **divided}
    assert [part.sae[width] * divisor for width in ("d_in", "d_sae")] == [
        whole.sae[width] for width in ("d_in", "d_sae")
    ]
    assert part.runner["batch_size"] * divisor == whole.runner["batch_size"]
    [size] = SIZES[name]
    assert (part.sae["k"], part.synthetic_model.training_samples) == (size.ks[0], size.samples)
    of_size = {"batch_size": size.batch_size, "lr": size.lr, "autocast_sae": size.autocast}
    assert of_size.items() <= {"autocast_sae": False, **part.runner}.items()
    decay = size.decay * (size.samples // size.batch_size)
    assert part.runner["lr_decay_steps"] == int(decay)


def test_the_papers_translation_of_steps(shipped: Plan) -> None:
    """Decay over the last fifth; SynthSAEBench has its own protocol, and small its own lr."""
    release, annealed = shipped.release, shipped.k_anneal_steps
    if release.name == "synth-sae-bench-16k":
        assert "lr_decay_steps" not in release.runner
        return
    tuned = {f"synth-sae-bench-{name}": SIZES[name][0].decay for name in ("2k", "4k")}
    decay = tuned.get(release.name, 0.2)
    assert release.runner["lr_decay_steps"] == pytest.approx(decay * shipped.steps, abs=2)
    assert set(annealed.values()) <= {shipped.steps // 100}
    if release.name == GEMMA:
        assert len(annealed) == len(shipped.saes) - 4  # all but TopK
        assert shipped.norm_multiple == 10


def test_matryoshkas_sub_saes_are_the_papers(shipped: Plan) -> None:
    """1/32, 1/8, 1/4 and 1/2 of the latents, and all; of the main release, the code's."""
    for config in shipped.saes.values():
        if config.architecture() == "matryoshka_batchtopk":
            published = shipped.release.name == "synth-sae-bench-16k"
            parts = (32, 8, 2, 1) if published else (32, 8, 4, 2, 1)
            widths = [config.d_sae // part for part in parts]
            if shipped.release.name == GEMMA:
                groups = [config.d_sae // part for part in (32, 16, 8, 4)]
                widths = [*accumulate(groups), config.d_sae]
            assert config.matryoshka_widths == widths


@pytest.mark.parametrize("penalty", ["c2r", "ort"])
def test_a_schedule_that_the_training_does_not_come_to_is_told(
    tmp_path: Path, penalty: str
) -> None:
    grids = [{"id": "a", "sae": {"architecture": "ort_c2r"}}]
    release = write(tmp_path, grids=grids, runner={"batch_size": 100, "dead_feature_window": 5})
    start, warm_up = f"sae.{penalty}_start_step", f"sae.{penalty}_warm_up_steps"
    interval = f"sae.{penalty}_interval"
    assert not [*notes_on(plan_of(release, **{start: 9, warm_up: 10, interval: 3}))]
    for never in ({start: 6}, {warm_up: 2, interval: 10}):  # due at 0 and 5, and at 0 alone
        [note] = notes_on(plan_of(release, **never))
        assert f"`{interval}`" in note
        assert note.endswith("the penalty of a is never applied in 10 steps.")
    with pytest.raises(UserError, match=f"`{start}` should be below .* 10. Found 10 in a"):
        plan_of(release, **{start: 10})
    [note] = notes_on(plan_of(release, **{warm_up: 11}))
    assert note.startswith(f"Warning: `{warm_up}` is 11")


def test_a_training_too_short_to_revive_dead_latents_is_told(shipped: Plan) -> None:
    note = "Warning: `runner.dead_feature_window` is"
    assert not any(each.startswith(note) for each in notes_on(shipped))
    late = replace(shipped, runner={**shipped.runner, "dead_feature_window": shipped.steps})
    told = any(each.startswith(f"{note} {shipped.steps:,}, but") for each in notes_on(late))
    assert told == any(hasattr(each, "aux_loss_coefficient") for each in shipped.saes.values())


@pytest.mark.parametrize(
    ("release", "fields"),
    [
        ("minilm-layer-3", ["autocast"]),
        ("synth-sae-bench-16k", ["autocast_sae", "autocast_data"]),
    ],
)
@pytest.mark.parametrize("fast", [True, False])
def test_there_is_no_autocast_where_bfloat16_is_not_fast(
    release: str, fields: list[str], fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays in the plan, for a run may go on elsewhere."""
    asked = Mock(return_value=fast)
    monkeypatch.setattr("sae_lens_c2r.training.plan.has_fast_bfloat16", asked)
    plan = plan_of(find_release(release))
    config = runner_config(plan, sae_ids=list(plan.saes)[:1])
    assert [getattr(config, name) for name in fields] == [fast] * len(fields)
    assert all(plan.fingerprint()["runner"][name] for name in fields)
    asked.assert_called_with(torch.device("cpu"))
    note = f"Without {' and '.join(f'`runner.{name}`' for name in fields)}: cpu is"
    assert [each.startswith(note) for each in notes_on(plan)] == ([] if fast else [True])


@pytest.mark.parametrize("fast", [True, False])
def test_a_model_in_bfloat16_is_told_where_that_may_be_slow(
    fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sae_lens_c2r.training.plan.has_fast_bfloat16", lambda _: fast)
    release, key = find_release("smollm2-135m-layer-9"), "runner.model_from_pretrained_kwargs"
    notes = [*notes_on(plan_of(release))]
    assert any(f"`--set {key}.dtype=float32` may be faster" in note for note in notes) != fast
    notes = notes_on(plan_of(release, **{f"{key}.dtype": "float32"}))
    assert not any("may be faster" in note for note in notes)


@pytest.mark.parametrize("key", ["hub_id", "name", "revision"])
def test_any_model_may_read_the_texts_that_need_no_network(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python-documentation").mkdir()  # somebody's SAEs
    plan = plan_of(MINILM, **{f"{TEXT_MODEL}.{key}": "foo/bar"})
    assert getattr(plan.release.language_model, key) == "foo/bar"
    assert plan.text_path is None


def test_batchtopk_is_refused_where_its_threshold_cannot_be() -> None:
    release = read_release(find_release(MINILM))
    with pytest.raises(UserError, match=r"`device` should be cpu or cuda for .* Found mps"):
        configs.sae_config(next(iter(release.saes())), "mps")


def test_sizes_are_those_of_the_weights(tmp_path: Path) -> None:
    plan = plan_of(write(tmp_path), "width_1k/topk_k2")
    assert plan.steps == 10
    assert disk_bytes(plan) == 4 * (2 * 8 * 1024 + 8 + 1024)
    assert memory_bytes(plan) == 4 * disk_bytes(plan) + 3 * 4 * 100 * 1024


def test_what_this_machine_has_no_room_for_is_told(tmp_path: Path) -> None:
    plans = {size: plan_of(write(tmp_path), sae__d_sae=size) for size in (32, 10**13)}
    told = {size: [*too_large(plan, tmp_path / "new")] for size, plan in plans.items()}
    assert told[32] == []
    memory, disk = told[10**13]
    assert decimal(memory_bytes(plans[10**13])) in memory
    assert decimal(3 * checkpoint_bytes(plans[10**13])) in disk


@pytest.mark.parametrize("dtype", ["auto", None, "bfloat16"])
def test_memory_is_that_of_activations_of_the_model(dtype: str | None) -> None:
    options = {"runner__model_from_pretrained_kwargs": {"dtype": dtype}}
    difference = memory_bytes(plan_of(MINILM)) - memory_bytes(plan_of(MINILM, **options))
    assert (difference > 0) == (dtype == "bfloat16")
    told = notes_on(plan_of(MINILM, runner__dtype="bfloat16"))
    assert any("Without `runner.dtype`" in note for note in told)


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


CONFIG, FEATURES = "synthetic_model.config", RELEASE["synthetic_model"]["config"]
TEXT_MODEL, MULTIPLE = "language_model", f"runner.{NORM_MULTIPLE}"
WRONG = [
    *(
        (f"sae.{name}", {f"sae.{name}": value})
        for name, value in (
            *(("kk", 2), ("device", "cuda"), ("metadata", {}), ("matryoshka_widths", [4])),
            *(("k", value) for value in (0, 2000, 0.5, None, date(2026, 1, 1))),
            *(("d_sae", value) for value in (True, "256", 0, 1.5, None)),
            *(("d_in", 0), ("d_in", "abc"), ("dtype", "int8")),
            *(("seed", value) for value in (10**20, 1e38, -1, 0.5, "abc")),
            *(("decoder_init_norm", math.nan), ("decoder_init_norm", math.inf)),
            *(("decoder_init_norm", -1.0), ("d_in", 9)),
            *(("k_anneal_steps", 10), ("k_anneal_steps", -1), ("k_anneal_steps", True)),
            ("normalize_activations", "l2"),
        )
    ),
    *(
        (f"runner.{name}", {f"runner.{name}": value})
        for name, value in (
            *(("batchsize", 100), ("output_path", "x"), ("n_checkpoints", 3)),
            *(("lr", -1e-3), ("lr", math.nan), ("lr", "small"), ("autocast_sae", 1)),
            *(("batch_size", 0), ("dead_feature_window", -1), ("lr_warm_up_steps", -1)),
            *(("n_batches_for_norm_estimate", 0), ("lr_decay_steps", 11), ("logger", 5)),
            *(("matmul_precision", "higher"), ("max_activation_norm_multiple", 10)),
            *(("training_samples", 5), ("synthetic_model", 5), ("evaluator", "x")),
            *(("lr_warm_up_steps", 11), ("eval_samples", -1), ("feature_sampling_window", 0)),
        )
    ),
    ("runner.logger.wandb", {"runner.logger": {"wandb": 1}}),
    ("runner.logger", {"runner.logger.log_to_wandb": "maybe"}),
    (CONFIG, {CONFIG: {"hidden_dim": 8, "seed": 42}}),  # how many features?
    (CONFIG, {CONFIG: {"num_features": 16, "seed": 42}}),
    *(
        (f"{CONFIG}.{name}", {CONFIG: {**FEATURES, name: value}})
        for name, value in (
            *(("features", 3), ("dtype", "float3"), ("seed", None), ("seed", "0")),
            *(("mean_firing_magnitudes", {"start": math.nan}), ("hierarchy", 5)),
        )
    ),
    *(
        (key, {"grids": [{"id": "x", "axes": axes}], "sae": {"d_in": 8, "d_sae": 8}})
        for key, axes in (
            ("sae.architecture", {"architecture": ["c2r"]}),
            ("sae.architecture", {"architecture": [["topk", "topk_c2r"]]}),
            ("sae.c2r_coefficient", {"architecture": ["topk"], "c2r_coefficient": [1]}),
            ("sae.k_anneal_steps", {"architecture": ["jumprelu"], "k_anneal_steps": [1]}),
            ("sae.c2r_interval", {"architecture": ["topk_c2r"], "c2r_interval": [0]}),
        )
    ),
]
WRONG_FOR_TEXT = [
    *((MINILM, "runner.seqpos_slice", each) for each in ([0, 0], [128, None], [0, 9, 0], [])),
    (MINILM, "runner.seqpos_slice", [None, None, -1]),
    *((MINILM, "runner.store_batch_size_prompts", 0), (MINILM, "runner.dtype", "float3")),
    *((MINILM, "runner.n_batches_in_buffer", 0), (MINILM, "runner.dtype", "int8")),
    *((MINILM, "runner.activations_mixing_fraction", share) for share in (-0.5, 1.5)),
    *((MINILM, MULTIPLE, value) for value in (0.5, True, "10", math.nan, math.inf, [10])),
    *((MINILM, MULTIPLE, 10**400), (MINILM, "runner.model_class_name", "AutoModel")),
    (MINILM, "language_model.context_size", 129),
    *((GEMMA, "language_model.name", "gemma-x"), (MINILM, "runner.foo", 1)),
]


def test_an_unknown_field_is_told_with_its_value(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"`sae\.foo` should be a field.*Found \{'bar': 3\}"):
        plan_of(write(tmp_path), sae__foo__bar=3)


@pytest.mark.parametrize(
    ("name", "key", "overrides"),
    [
        *((None, key, overrides) for key, overrides in WRONG),
        *((name, key, {key: value}) for name, key, value in WRONG_FOR_TEXT),
        *(
            (
                *(GEMMA, f"{TEXT_MODEL}.hub_id"),
                {f"{TEXT_MODEL}.hub_id": model, f"{TEXT_MODEL}.name": None},
            )
            for model in ("openai-community/gpt2", "sentence-transformers/all-MiniLM-L6-v2")
        ),
    ],
)
def test_what_training_would_fail_by_is_named(
    tmp_path: Path, name: str | None, key: str, overrides: dict[str, Any]
) -> None:
    with pytest.raises(UserError) as raised:
        plan_of(name or write(tmp_path), **overrides)
    assert f"`{key}{'`' if name else ''}" in str(raised.value)
    assert key != "runner.lr_decay_steps" or "warm_up" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert " _" not in str(raised.value)  # what SAELens keeps for itself


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"runner.lr_scheduler_name": "foo"}, "Unsupported scheduler: foo"),
        ({"runner.adam_beta1": 5}, "Invalid beta parameter"),
        ({"runner.lr": 0, "runner.lr_decay_steps": 5}, "cannot make an optimizer"),
        ({"runner.foo": 1}, ", matmul_precision, "),
        ({"grids": [{"id": "x", "sae": {"architecture": "matryoshka_batchtopk"}}]}, "widths"),
    ],
)
def test_what_sae_lens_says_is_told(
    tmp_path: Path, overrides: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        plan_of(write(tmp_path), **overrides)


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


def test_an_sae_may_be_of_another_dtype(tmp_path: Path) -> None:
    plan = plan_of(write(tmp_path), "width_1k/topk_k2", sae__dtype="bfloat16")
    assert plan.saes["width_1k/topk_k2"].dtype == "bfloat16"
    features = {**FEATURES, "dtype": "bfloat16"}
    assert plan_of(write(tmp_path, synthetic_model={"training_samples": 9, "config": features}))


def test_a_mode_of_sae_lens_that_is_not_annotated_is_taken(tmp_path: Path) -> None:
    mode = {"normalize_activations": "constant_norm_rescale", "d_in": 8, "d_sae": 16}
    grids = [{"id": "x", "sae": {"architecture": "standard_c2r"}}]
    assert plan_of(write(tmp_path, sae=mode, grids=grids)).saes["x"].normalize_activations


@pytest.mark.parametrize("mode", ["layer_norm", "constant_norm_rescale"])
def test_sae_lens_has_no_loss_for_dead_latents_of_normalized_inputs(
    tmp_path: Path, mode: str
) -> None:
    changes: dict[str, Any] = {"sae__normalize_activations": mode}
    assert plan_of(write(tmp_path), **changes).saes  # in which no latent is dead yet
    with pytest.raises(UserError, match=r"`sae\.normalize_activations` should be none"):
        plan_of(write(tmp_path), **changes, runner__dead_feature_window=9)


def test_what_changes_no_weights_is_the_same_training(tmp_path: Path) -> None:
    path = write(tmp_path)
    log = {"log_to_wandb": True, "log_weights_to_wandb": True, "wandb_project": "mine"}
    changed = plan_of(path, runner__eval_frequency=5, runner__logger=log)
    assert changed.fingerprint() == plan_of(path).fingerprint()
    assert any(
        "Without `runner.logger.log_weights_to_wandb`" in note for note in notes_on(changed)
    )


def test_a_fraction_may_be_larger_than_any_integer_of_torch(tmp_path: Path) -> None:
    changed = parse_overrides(["sae.c2r_coefficient=1e38"])
    read = read_release(write(tmp_path), overrides=changed)
    plan = make_plan(read, device="cpu")
    found = [getattr(each, "c2r_coefficient", None) for each in plan.saes.values()]
    assert [(each, type(each)) for each in found if each] == 2 * [(1e38, float)]


def test_steps_are_counted_in_whole_numbers() -> None:
    tokens = 2048 * 2**60 + 1
    assert plan_of(MINILM, language_model__training_tokens=tokens).steps == 2**60 + 1
    with pytest.raises(UserError, match=r"`language_model\.training_tokens` should be finite"):
        plan_of(MINILM, language_model__training_tokens=10**400)


def test_an_unknown_id_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ids of the release: width_1k.*Found 'topk'"):
        plan_of(write(tmp_path), "topk")


def test_the_models_revision_is_what_sae_lens_loads() -> None:
    plan = plan_of(GEMMA, language_model__revision="abc")
    config = runner_config(plan, sae_ids=list(plan.saes))
    assert config.model_from_pretrained_kwargs == {  # type: ignore[union-attr]
        "center_writing_weights": False,
        "revision": "abc",
    }
    said = {"runner__model_from_pretrained_kwargs": {"dtype": "float32"}}
    plan = plan_of(GEMMA, language_model__revision="abc", **said)
    runner_config(plan, sae_ids=list(plan.saes))
    assert plan.runner["model_from_pretrained_kwargs"] == {"dtype": "float32"}


def test_logging_is_the_releases_to_choose(tmp_path: Path) -> None:
    chosen = {"runner": {"logger": {"wandb_project": "mine", "wandb_log_frequency": 5}}}
    for changed, logs in (({}, False), (chosen, True)):
        plan = plan_of(write(tmp_path, **changed))
        config = runner_config(plan, sae_ids=["width_1k/topk_k2"])
        assert config.logger.log_to_wandb == logs
    assert config.logger.wandb_project == "mine"


def test_what_sae_lens_does_not_do_is_said() -> None:
    logger = {"wandb_project": "mine"}  # SAELens's own runner would send it the weights
    chosen = {"dead_feature_threshold": 1e-6, "use_chat_formatting": True, "logger": logger}
    plan = plan_of(MINILM, **{f"runner.{key}": of for key, of in chosen.items()})
    told = " ".join(notes_on(plan))
    for name in ("dead_feature_threshold", "logger.log_weights_to_wandb"):
        assert f"Without `runner.{name}`" in told
    assert "each text is one turn of a user" in told


def test_a_plan_of_two_runs_does_not_say_that_it_is_one() -> None:
    plain = {"architecture": "batchtopk", "normalize_activations": "none"}
    estimated = {"architecture": "batchtopk"}
    plan = plan_of(MINILM, grids=[{"id": "a", "sae": plain}, {"id": "b", "sae": estimated}])
    text = printed(plan)
    assert "2 SAEs: " in text
    assert "at once" not in text


def test_weights_should_not_have_the_seed_of_the_features() -> None:
    features = "synth-sae-bench-2k"
    for seed, warns in ((0, False), (42, True)):
        notes = [*notes_on(plan_of(features, sae__seed=seed))]
        assert any("`sae.seed` should differ" in note for note in notes) == warns


def test_our_own_keys_are_settings_that_a_run_has_to_share(tmp_path: Path) -> None:
    """Those of releases that do not name them are what they were before there were any."""
    runners = []
    for multiple in (None, 10):
        plan = plan_of(MINILM, **{MULTIPLE: multiple})
        runners.append(plan.fingerprint()["runner"])
    assert NORM_MULTIPLE not in runners[0]
    assert runners[1] == {**runners[0], NORM_MULTIPLE: 10}
    only = "width_1k/topk_k2"
    for steps, expected in ((0, None), (6, 6)):
        annealed = plan_of(write(tmp_path), sae__k_anneal_steps=steps)
        assert annealed.fingerprint()["saes"][only].get(K_ANNEAL_STEPS) == expected
