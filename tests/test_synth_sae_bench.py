"""The benchmark of known features: its sizes, its curves, and what it asks of them."""

import json
import math
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sae_lens.config import SAETrainerConfig

from benchmarks import trainer
from benchmarks.page import fill
from benchmarks.parallel import read
from benchmarks.statistics import Interval, interpolate
from benchmarks.synth_sae_bench import runs, world
from benchmarks.synth_sae_bench.__main__ import PAGE, README, RESULTS, SEEDS, page_tables
from benchmarks.synth_sae_bench.claims import QUESTIONS, Question, verdict
from benchmarks.synth_sae_bench.controls import ActivationsOnly, DirectionsOnly
from benchmarks.synth_sae_bench.curves import (
    HALFWAY,
    PRICES,
    at_equal,
    difference,
    of_full_length,
)
from benchmarks.synth_sae_bench.figure import figure
from benchmarks.synth_sae_bench.methods import (
    BY_LENGTH,
    METHODS,
    Run,
    runs_of,
    runs_to_choose_lr,
)
from benchmarks.synth_sae_bench.runs import execute, key, make_sae, train
from benchmarks.synth_sae_bench.schedules import between_table
from benchmarks.synth_sae_bench.tables import (
    WHICH_ONE,
    learning_rates,
    lengths_table,
    published_table,
    questions_table,
    sparsities_table,
    tables,
)
from benchmarks.synth_sae_bench.wishes import WISHES, wishes_table
from benchmarks.synth_sae_bench.world import SIZES, Size, World
from sae_lens_c2r.releases.files import find_release, read_release
from tests.architectures.training import make_config, step_input
from tests.forkserver import run as run_python

TINY = Size("tiny", (2,), 2048, 4096, evaluation=4096)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world of few features, made as the others are."""
    release = read_release(find_release("synth-sae-bench-2k"))
    config = {**release.synthetic_model.config, "num_features": 64, "hidden_dim": 16}
    config["hierarchy"] = {**config["hierarchy"], "total_root_nodes": 2, "max_depth": 1}
    config["orthogonalization"] = {"num_steps": 2, "lr": 3e-4}
    small = release.model_copy(
        update={
            "synthetic_model": release.synthetic_model.model_copy(update={"config": config}),
            "sae": {"d_in": 16, "d_sae": 32},
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "find_release", str)
        patch.setattr(world, "read_release", lambda _: small)
        patch.setattr(world, "CHUNK", 4096)
        patch.setattr(world, "execute_all", in_this_process)
        found = World(TINY, tmp_path_factory.mktemp("samples"))
        found.generate(processes=1)
        yield found


def in_this_process(runs, execute, _path: Path, **_: object) -> None:
    for run in runs:
        execute(run)


@pytest.mark.parametrize(("name", "divisor"), [("4k", 4), ("2k", 8)])
def test_small_sizes_are_the_published_one_with_every_count_divided(
    name: str, divisor: int
) -> None:
    whole, part = (
        read_release(find_release(f"synth-sae-bench-{size}")) for size in ("16k", name)
    )
    config = dict(whole.synthetic_model.config)
    for count in ("num_features", "hidden_dim"):
        config[count] //= divisor
    roots = config["hierarchy"]["total_root_nodes"] // divisor
    config["hierarchy"] = {**config["hierarchy"], "total_root_nodes": roots}
    assert part.synthetic_model.config == config
    size = SIZES[name]
    assert part.synthetic_model.training_samples == size.training_samples
    assert part.sae["k"] == size.ks[0]
    assert part.runner["batch_size"] * divisor == whole.runner["batch_size"]
    assert part.runner["batch_size"] == size.batch_size
    assert part.runner["lr"] == size.lr
    assert part.runner.get("autocast_sae", False) == size.autocast
    steps = size.training_samples // size.batch_size
    assert part.runner["lr_decay_steps"] == int(size.decay * steps)
    for width in ("d_in", "d_sae"):
        assert part.sae[width] * divisor == whole.sae[width]


def test_samples_are_the_same_ones_in_another_order_for_every_seed(tiny: World) -> None:
    pool = np.load(tiny.pool)
    first, again, other = (next(tiny.batches(seed, 4096)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert np.array_equal(np.sort(first.numpy(), axis=0), np.sort(pool, axis=0))
    assert np.isfinite(pool).all()
    assert (pool.std(axis=0) > 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_makes_an_sae_of_its_own_strength(method: str, tiny: World) -> None:
    strength = METHODS[method].strengths[-1]
    sae = make_sae(Run("tiny", method, strength, 2, 0, 2048), tiny, "cpu")
    if METHODS[method].coefficient:
        assert getattr(sae.cfg, METHODS[method].coefficient) == strength
    for field, value in METHODS[method].options:
        assert getattr(sae.cfg, field) == value


def test_a_run_is_trained_once_and_measured(tiny: World) -> None:
    run = Run("tiny", "C2R", 5, 2, 0, 2048)
    torch.set_num_threads(1)
    open_world = partial(World, TINY, tiny.folder.parent)
    found = execute((run, open_world, "cpu"))
    saved = next((tiny.folder / "saes").rglob("sae_weights.safetensors"))
    before = saved.stat().st_mtime_ns
    again = execute((run, open_world, "cpu"))
    assert json.dumps(again) == json.dumps(found)  # of few samples absorption may be NaN
    assert saved.stat().st_mtime_ns == before
    assert found["method"] == "C2R"
    assert found["explained_variance"] < 1


@pytest.mark.parametrize("autocast", [False, True])
def test_a_size_says_whether_its_saes_are_trained_in_bf16(
    autocast: bool, tiny: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = []

    def trainer_config(**options: Any) -> SAETrainerConfig:
        configs.append(trainer.trainer_config(**options))
        return configs[-1]

    monkeypatch.setattr(runs, "trainer_config", trainer_config)
    monkeypatch.setattr(tiny, "size", replace(TINY, autocast=autocast))
    train(Run("tiny", "BatchTopK", 0.0, 2, 0, 2048), tiny, "cpu")
    assert [config.autocast for config in configs] == [autocast]


@pytest.mark.parametrize(
    ("control", "moves_decoder", "moves_acts"),
    [(DirectionsOnly, True, False), (ActivationsOnly, False, True)],
)
def test_a_control_has_one_of_the_two_gradients(control, moves_decoder, moves_acts) -> None:
    torch.manual_seed(0)
    sae = control(make_config("batchtopk_c2r"))
    acts = torch.rand(8, sae.cfg.d_sae, requires_grad=True)
    given = step_input(sae)
    neighbors = sae._find(sae.penalties[0].search, 0).neighbors
    penalty = sae._measure_c2r(given, acts, neighbors).penalty
    grads = torch.autograd.grad(penalty, [sae.W_dec, acts], allow_unused=True)
    assert [grad is not None and bool((grad != 0).any()) for grad in grads] == [
        moves_decoder,
        moves_acts,
    ]


def test_a_line_is_followed_from_its_last_point() -> None:
    up_and_down = [(0.80, 1.0), (0.82, 2.0), (0.78, 4.0), (0.70, 5.0)]
    assert interpolate(up_and_down, 0.80) == pytest.approx(3.0)
    assert interpolate(up_and_down, 0.74) == pytest.approx(4.5)
    assert math.isnan(interpolate(up_and_down, 0.83))
    assert math.isnan(interpolate([(0.5, 1.0)], 0.5))
    assert interpolate([(0.5, 1.0), (0.5, 2.0)], 0.5) == 1.0


def result(method: str, strength: float, seed: int, **metrics: float) -> dict[str, Any]:
    about = {"method": method, "strength": strength, "seed": seed, "k": 8}
    numbers = {"explained_variance": 0.8, "composition": 0.4, "chance_composition": 0.3}
    samples = {"training_samples": SIZES["2k"].training_samples}
    return {**about, **samples, **numbers, **metrics}


def curves(seed: int) -> list[dict[str, Any]]:
    """At a price of .005 C2R has an F1 of .55, OrtSAE of .50."""
    return [
        result("BatchTopK", 0.0, seed, f1=0.6),
        result("C2R", 2, seed, f1=0.6),
        result("OrtSAE", 0.1, seed, f1=0.6),
        result("C2R", 5, seed, explained_variance=0.79, composition=0.3, f1=0.5),
        result("OrtSAE", 0.25, seed, explained_variance=0.79, composition=0.2, f1=0.4),
    ]


def test_methods_are_compared_where_they_cost_or_achieve_the_same() -> None:
    results = [*curves(0), *curves(1)]
    price = next(each for each in PRICES if "0.005" in each.name)
    assert at_equal(results, "C2R", price, "f1") == pytest.approx({(0, 8): 0.55, (1, 8): 0.55})
    assert at_equal(results, "OrtSAE", HALFWAY, "f1")[0, 8] == pytest.approx(0.55)
    found = Question("C2R", "OrtSAE", price).measured(results, "f1")
    assert found.mean == pytest.approx(0.05)
    with_another = [*results, result("BatchTopK", 0.0, 2)]
    assert Question("C2R", "OrtSAE", price).rests_on(with_another) == [(0, 8), (1, 8)]
    one_strength = [each for each in results if each["strength"] not in (0.1, 2)]
    assert at_equal(one_strength, "C2R", price, "f1") == {}
    at_their_own = Question("C2R", "OrtSAE", (5, 0.25)).measured(results, "f1")
    assert at_their_own.mean == pytest.approx(0.1)


def test_differences_are_paired_by_seed_and_sparsity() -> None:
    first = {(0, 8): 1.0, (0, 5): 3.0, (1, 8): 2.0, (2, 8): 9.0}
    second = {(0, 8): 0.0, (0, 5): 1.0, (1, 8): 0.5, (2, 8): math.nan}
    assert difference(first, second) == Interval.of([1.5, 1.5])


@pytest.mark.parametrize(
    ("metric", "mean", "half_width", "said"),
    [
        ("f1", 0.1, 0.05, "ahead"),
        ("f1", -0.1, 0.05, "behind"),
        ("absorption", -0.1, 0.05, "ahead"),
        ("f1", 0.1, 0.2, "undecided"),
        ("composition", -0.1, 0.05, ""),
        ("f1", 0.1, math.inf, "not measured"),
        ("f1", math.nan, math.nan, "not measured"),
    ],
)
def test_a_verdict_is_that_of_the_interval(metric, mean, half_width, said) -> None:
    assert verdict(Interval(mean, half_width), metric) == said


def test_every_question_is_of_methods_and_strengths_that_are_trained() -> None:
    trained = {(run.method, run.strength) for run in runs_of(SIZES["2k"], seeds=1)}
    for question in QUESTIONS:
        if isinstance(question.at, tuple):
            assert (question.first, question.at[0]) in trained
            assert (question.second, question.at[1]) in trained
        else:
            for name in (question.first, question.second):
                assert len([method for method, _ in trained if method == name]) > 1


def test_some_methods_are_trained_for_other_lengths_as_well() -> None:
    size = SIZES["2k"]
    runs = runs_of(size, seeds=2)
    others = [run for run in runs if run.training_samples != size.training_samples]
    assert {(run.method, run.strength) for run in others} == set(BY_LENGTH)
    assert len(others) == 2 * len(BY_LENGTH) * len(size.other_training_samples)
    assert {run.k for run in others} == {size.ks[0]}
    assert {run.training_samples for run in others} == set(size.other_training_samples)
    full = {(run.method, run.strength) for run in runs if run not in others}
    assert set(BY_LENGTH) <= full
    fewer = replace(size, methods={"BatchTopK": (0.0,)})
    assert {run.method for run in runs_of(fewer, seeds=2)} == {"BatchTopK"}


def test_tables_show_what_there_is_and_nothing_else() -> None:
    whole = {
        **{"f1": 0.5, "mcc": 0.6, "uniqueness": 0.9, "absorption": 0.1, "dead_latents": 0.0},
        "highest_jaccard": 0.3,
    }
    results = [
        {**each, **whole, "l0": 8.0, "f1": each["f1"]}
        for seed in (0, 1)
        for each in curves(seed)
    ]
    found = tables(SIZES["2k"], results)
    assert "| C2R | OrtSAE | at 5 and 0.25 | 2 |" in found["questions"]
    assert "Matryoshka" not in found["questions"]
    assert "| C2R |" not in found["sparsities"]
    assert "| 8 | C2R 5 | 2 |" in found["methods"]
    assert "published" in found


def test_each_sparsity_is_shown_by_itself_and_all_of_them_together() -> None:
    size = replace(SIZES["2k"], ks=(8, 5))
    results = [
        {**each, "k": k, "f1": each["f1"] + (k == 5) * (each["method"] == "C2R")}
        for k, seeds in ((5, (0, 1)), (8, (0, 1, 2)))
        for seed in seeds
        for each in curves(seed)
    ]
    about = "| C2R | OrtSAE | at 5 and 0.25 |"

    def rows_at(*ks: int) -> list[str]:
        shown = sparsities_table(replace(size, ks=ks), results).splitlines()
        return [row for row in shown if row.startswith(about)]

    rows = rows_at(8, 5)
    price = "+0.000 ± 0.000 **undecided**"
    expected = [("5 | 2", 1.1), ("8 | 3", 0.1), ("all | 2", 0.6)]
    for row, (of, f1) in zip(rows, expected, strict=True):
        assert row.startswith(f"{about} {of} | {price} | {f1:+.3f} ±")
    assert rows_at(8, 5, 12) == rows[:2]  # Nothing is said of all where one is missing,
    results += [{**each, "k": 12} for seed in (0, 1) for each in curves(seed)]
    assert rows_at(8, 5) == rows  # nor in it of others.
    assert f"{about} 3 | {price} | +0.100 ±" in questions_table(size, results)


def of_two_lengths() -> list[dict[str, Any]]:
    """C2R at 5 is .1 of F1 behind BatchTopK after 400 samples, and .3 after 100."""
    return [
        {
            **{
                "mcc": 0.6,
                "uniqueness": 0.9,
                "absorption": 0.1,
                "dead_latents": 0.0,
                "l0": 8.0,
            },
            **each,
            "k": k,
            "training_samples": samples,
            "f1": each["f1"] - (0.2 if (samples, each["method"]) == (100, "C2R") else 0),
        }
        for samples, k in ((400, 8), (400, 5), (100, 8))
        for seed in (0, 1)
        for each in curves(seed)
        if samples == 400 or each["method"] != "OrtSAE"
    ]


TWO_LENGTHS = replace(
    SIZES["2k"], ks=(8, 5), training_samples=400, other_training_samples=(100,)
)


def test_each_training_length_is_shown_by_itself_beside_what_batchtopk_has() -> None:
    rows = lengths_table(TWO_LENGTHS, of_two_lengths()).splitlines()[2:]
    for row, samples in zip(rows, (100, 400), strict=False):
        assert row.startswith(f"| BatchTopK |  |  | {samples} | 2 | 0.800 ± 0.000 | 0.600 ±")
    about = "| C2R | BatchTopK | at 5 |"
    differences = [row for row in rows if row.startswith(about)]
    for row, (samples, f1) in zip(differences, ((100, -0.3), (400, -0.1)), strict=True):
        price = "-0.010 ± 0.000 **behind**"
        assert row.startswith(f"{about} {samples} | 2 | {price} | {f1:+.3f} ±")
    assert not any("OrtSAE" in row for row in rows)


def test_training_lengths_are_compared_on_curves_through_the_same_strengths() -> None:
    results = [
        {**each, "training_samples": samples}
        for samples in (100, 400)
        for seed in (0, 1)
        for each in curves(seed)
    ]
    finer = [
        {**result("C2R", 3, seed, composition=0.35, f1=0.1), "training_samples": 400}
        for seed in (0, 1)
    ]
    expected = lengths_table(TWO_LENGTHS, results)
    assert "| C2R | OrtSAE | composition halfway" in expected
    assert lengths_table(TWO_LENGTHS, [*results, *finer]) == expected


def test_other_training_lengths_are_shown_nowhere_else() -> None:
    results = of_two_lengths()
    full = [each for each in results if each["training_samples"] == 400]
    shown, of_full = (tables(TWO_LENGTHS, each) for each in (results, full))
    assert {name for name in shown if shown[name] != of_full[name]} == {"lengths"}
    assert set(shown) > {"questions", "methods", "sparsities", WHICH_ONE, "published"}
    drawn, of_full_drawn = (figure(TWO_LENGTHS, each) for each in (results, full))
    for panel, other in zip(drawn.axes, of_full_drawn.axes, strict=True):
        for line, same in zip(panel.lines, other.lines, strict=True):
            assert np.array_equal(line.get_xydata(), same.get_xydata())


def test_a_figure_has_a_row_for_each_sparsity_and_a_line_for_each_method() -> None:
    size = replace(SIZES["2k"], ks=(8, 5, 12))
    results = [
        {**each, "k": k}
        for k, methods in ((5, {"BatchTopK", "C2R"}), (8, {"BatchTopK", "C2R", "OrtSAE"}))
        for each in curves(0)
        if each["method"] in methods
    ]
    drawn = figure(size, results)
    assert [panel.get_ylabel() for panel in drawn.axes] == ["k = 5", "", "k = 8", ""]
    lines = [[line.get_label() for line in panel.lines[:-1]] for panel in drawn.axes]
    assert lines == [["C2R"]] * 2 + [["C2R", "OrtSAE"]] * 2
    [legend] = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == ["C2R", "OrtSAE"]


def test_the_published_order_is_that_of_one_sparsity() -> None:
    results = [
        result("BatchTopK", 0.0, 0, l0=7.9, f1=0.6, mcc=0.7),
        result("JumpReLU", 5, 0, l0=10.0, f1=0.4, mcc=0.7),
        result("JumpReLU", 10, 0, l0=6.0, f1=0.6, mcc=0.7),
    ]
    rows = published_table(SIZES["2k"], results).splitlines()[2:]
    assert [row.split(" | ")[2].split()[0] for row in rows] == ["7.900", "8.000"]
    assert [row.split(" | ")[4].split()[0] for row in rows] == ["0.600", "0.500"]
    further = [
        result("JumpReLU", strength, 1, l0=l0, f1=0.9, mcc=0.7)
        for strength, l0 in ((5, 12.0), (10, 9.0))
    ]
    [_, row] = published_table(SIZES["2k"], [*results, *further]).splitlines()[2:]
    assert row.startswith("| JumpReLU | 1 | 8.000 ")  # The other seed does not come to it.


def test_learning_rates_are_shown_best_first_and_the_best_is_taken() -> None:
    size, results = SIZES["2k"], read(RESULTS / "2k-learning-rates.jsonl")
    assert {key(each) for each in results} == {
        key(asdict(run)) for run in runs_to_choose_lr(size)
    }
    first = learning_rates(results).splitlines()[2]
    assert first.startswith(f"| {size.lr:g} | {size.decay:g} |")


def test_two_schedules_are_compared_within_a_seed() -> None:
    first, second = (
        [
            {"method": "BatchTopK", "strength": 0.0, "k": 16, "seed": seed, "absorption": each}
            for seed, each in enumerate(rates)
        ]
        for rates in ((0.1, 0.2), (0.4, 0.6))
    )
    # C2R absorbs .1 less than BatchTopK in the first, and .2 and .4 less in the second.
    first += [
        {**each, "method": "C2R", "strength": 5, "absorption": each["absorption"] - 0.1}
        for each in first
    ]
    second += [
        {**each, "method": "C2R", "strength": 5, "absorption": each["absorption"] - less}
        for each, less in zip(second, (0.2, 0.4), strict=True)
    ]
    only_here = {**first[0], "method": "OrtSAE", "strength": 1}
    found = between_table([*first, only_here], second).splitlines()[2:]
    for row, about, expected in zip(
        found, ("BatchTopK", "C2R 5 less BatchTopK"), ([-0.3, -0.4], [0.1, 0.3]), strict=True
    ):
        interval = Interval.of(expected)
        assert row == f"| {about} | {interval.mean:+.3f} ± {interval.half_width:.3f} |"


@pytest.mark.parametrize("name", ["2k", "4k"])
def test_the_results_that_are_kept_are_of_all_runs(name: str) -> None:
    wanted = {key(asdict(run)) for run in runs_of(SIZES[name], seeds=SEEDS)}
    assert {key(result) for result in read(RESULTS / f"{name}.jsonl")} == wanted


def test_the_pages_show_the_results_that_are_kept() -> None:
    found = page_tables()
    for page, shown in {PAGE: found, README: {WHICH_ONE: found[WHICH_ONE]}}.items():
        text = page.read_text(encoding="utf-8")
        assert fill(text, shown) == text


@pytest.mark.parametrize("name", ["2k", "4k"])
def test_wishes_rest_on_every_seed(name: str) -> None:
    size = SIZES[name]
    results = of_full_length(size, read(RESULTS / f"{name}.jsonl"))
    for wish in WISHES:
        complete = wish.question.of_complete_seeds(results, size.ks)
        assert {each["seed"] for each in complete} == set(range(SEEDS))


def test_wishes_are_differences_from_batchtopk_of_the_same_seed_and_sparsity() -> None:
    wish, size = WISHES[0], SIZES["2k"]

    def result(method: str, strength: float, seed: int, k: int, f1: float) -> dict[str, Any]:
        about = {"method": method, "strength": strength, "seed": seed, "k": k}
        return {**about, "f1": f1, "explained_variance": 0.0}

    plain = [result("BatchTopK", 0.0, seed, k, 0.1 * k) for seed in range(3) for k in size.ks]
    ours = [
        result(wish.method, wish.strength, seed, k, 0.1 * k + gain)
        for seed, gain in ((0, 0.1), (1, 0.2), (2, 9.0))
        for k in size.ks
    ]
    without_one = ours[:-1]  # The last seed lacks a sparsity.
    assert str(Interval.of([0.1, 0.2])) in wishes_table(size, [*plain, *without_one])
    assert str(Interval.of([0.1, 0.2, 9.0])) in wishes_table(size, [*plain, *ours])
    assert f"`{METHODS[wish.method].architecture}`" in wish.setting
    at_first = [each for each in [*plain, *ours] if each["k"] == size.ks[0]]
    assert len(wishes_table(size, at_first).splitlines()) == 3  # BatchTopK alone
    assert len(wishes_table(size, ours).splitlines()) == 2  # nothing to compare with


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_size_has_methods_and_strengths_that_are_shown(size: Size) -> None:
    for name, strengths in (size.methods or {}).items():
        assert set(strengths) <= set(METHODS[name].strengths)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "C3R"], "--only should be some of ['BatchTopK', 'C2R', "),
        (["--quick", "--size", "4k"], "--quick is of 2k. Found --size 4k."),
        (["--training-samples", "4096"], "--training-samples needs --out"),
    ],
)
def test_what_nothing_could_be_trained_by_is_refused_at_once(
    arguments: list[str], said: str
) -> None:
    refused = run_python("-m", "benchmarks.synth_sae_bench", *arguments)
    assert refused.returncode == 2
    assert said in refused.stderr


def test_it_is_a_command() -> None:
    shown = run_python("-m", "benchmarks.synth_sae_bench", "--help")
    assert shown.returncode == 0
    assert "--size {2k,4k,16k}" in shown.stdout
