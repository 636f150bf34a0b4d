"""Intervals, lines between points, and how methods are compared and judged."""

import math
from dataclasses import asdict, replace
from typing import Any

import pytest
from scipy import stats

from benchmarks.statistics import Interval, interpolate
from benchmarks.study.judgement import Comparison
from benchmarks.synth_sae_bench.claims import Question, verdict
from benchmarks.synth_sae_bench.curves import (
    HALFWAY,
    PRICES,
    at_equal,
    difference,
    of_full_length,
)
from benchmarks.synth_sae_bench.tables import lengths_table
from benchmarks.synth_sae_bench.world import SIZES
from benchmarks.transfer.rules import LAMBDAS, Setting, rules
from sae_lens_c2r.penalties import transfer_factor

PRICE = next(each for each in PRICES if "0.005" in each.name)


def test_intervals_are_students() -> None:
    found = Interval.of([0.1, 0.4, 0.2, 0.9, math.nan])
    low, high = stats.t.interval(0.95, 3, loc=0.4, scale=stats.sem([0.1, 0.4, 0.2, 0.9]))
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx(
        (low, high)
    )
    assert Interval.of([1.0, 1.1, 0.9]).sign == 1
    assert Interval.of([-1.0, 1.1, 0.9]).sign == 0
    assert Interval.of([3.0]).half_width == math.inf


def test_a_line_is_followed_from_its_last_point() -> None:
    up_and_down = [(0.80, 1.0), (0.82, 2.0), (0.78, 4.0), (0.70, 5.0)]
    assert interpolate(up_and_down, 0.80) == pytest.approx(3.0)
    assert interpolate(up_and_down, 0.74) == pytest.approx(4.5)
    assert math.isnan(interpolate(up_and_down, 0.83))
    assert math.isnan(interpolate([(0.5, 1.0)], 0.5))
    assert interpolate([(0.5, 1.0), (0.5, 2.0)], 0.5) == 1.0


@pytest.mark.parametrize(
    ("sign", "mean", "half_width", "expected"),
    [
        *((-1, -0.2, 0.1, "agrees"), (-1, 0.2, 0.1, "differs"), (-1, -0.1, 0.2, "undecided")),
        *((1, 0.2, 0.1, "agrees"), (1, -0.2, 0.1, "differs")),
        *((0, -0.002, 0.001, "agrees"), (0, 0.5, 0.1, "agrees"), (0, -0.2, 0.1, "differs")),
        *((0, -0.01, 0.02, "undecided"), (0, 1.0, math.inf, "not measured")),
        (-1, math.nan, math.nan, "not measured"),
    ],
)
def test_a_claim_is_judged_by_the_interval_of_the_difference(
    sign: int, mean: float, half_width: float, expected: str
) -> None:
    claim = Comparison("", "", "composition", ("a", {}), ("b", {}), sign)
    assert claim.verdict(Interval(mean, half_width)) == expected


@pytest.mark.parametrize(
    ("metric", "mean", "half_width", "expected"),
    [
        *(("f1", 0.1, 0.05, "ahead"), ("f1", -0.1, 0.05, "behind")),
        *(("absorption", -0.1, 0.05, "ahead"), ("composition", -0.1, 0.05, "")),
        *(("f1", 0.1, 0.2, "undecided"), ("f1", 0.1, math.inf, "not measured")),
        ("f1", math.nan, math.nan, "not measured"),
    ],
)
def test_a_method_is_judged_by_the_interval(
    metric: str, mean: float, half_width: float, expected: str
) -> None:
    assert verdict(Interval(mean, half_width), metric) == expected


def of_study(architecture: str, seed: int, k: int, **found: Any) -> dict[str, Any]:
    return {"architecture": architecture, "options": [], "k": k, "seed": seed, **found}


def test_differences_are_paired_by_seed_and_sparsity() -> None:
    first = {(0, 8): 1.0, (0, 5): 3.0, (1, 8): 2.0, (2, 8): 9.0}
    second = {(0, 8): 0.0, (0, 5): 1.0, (1, 8): 0.5, (2, 8): math.nan}
    assert difference(first, second) == Interval.of([1.5, 1.5])
    results = [of_study("a", seed, 6, composition=seed + 0.5) for seed in range(4)]
    results += [of_study("b", seed, 6, composition=float(seed)) for seed in (3, 1, 2)]
    results += [
        of_study(name, seed, 8, composition=value)
        for name, seed, value in (("a", 1, 2.0), ("b", 1, 0.5), ("a", 2, 9.0))
    ]
    claim = Comparison("", "", "composition", ("a", {}), ("b", {}), 1)
    expected = Interval.of([0.5, 1.0, 0.5])  # seed 1: the mean of 0.5 and 1.5
    assert asdict(claim.measured(results)) == pytest.approx(asdict(expected))


def test_another_is_taken_where_it_comes_to_the_same() -> None:
    results = [
        of_study("batchtopk", 0, 6, composition=0.4, mcc=0.9),
        of_study("batchtopk_c2r", 0, 6, composition=0.3, mcc=0.8),
        of_study("ort", 0, 6, composition=0.38, mcc=0.85),
    ]
    for strength, composition, mcc in ((4.0, 0.1, 0.1), (1.0, 0.34, 0.8)):
        stronger = of_study("ort", 0, 6, composition=composition, mcc=mcc)
        results.append({**stronger, "options": [("ort_coefficient", strength)]})
    claim = Comparison(
        "", "", "mcc", ("batchtopk_c2r", {}), ("ort", {}), 1, equal="composition"
    )
    assert claim.measured(results).mean == pytest.approx(0.8 - (0.8 - 0.7 * 0.04 / 0.24))
    results[1]["composition"] = 0.05  # none of its strengths comes to that
    assert math.isnan(claim.measured(results).mean)


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
    assert at_equal(results, "C2R", PRICE, "f1") == pytest.approx({(0, 8): 0.55, (1, 8): 0.55})
    assert at_equal(results, "OrtSAE", HALFWAY, "f1")[0, 8] == pytest.approx(0.55)
    question = Question("C2R", "OrtSAE", PRICE)
    assert question.measured(results, "f1").mean == pytest.approx(0.05)
    assert question.rests_on([*results, result("BatchTopK", 0.0, 2)]) == [(0, 8), (1, 8)]
    one_strength = [each for each in results if each["strength"] not in (0.1, 2)]
    assert at_equal(one_strength, "C2R", PRICE, "f1") == {}
    at_their_own = Question("C2R", "OrtSAE", (5, 0.25)).measured(results, "f1")
    assert at_their_own.mean == pytest.approx(0.1)


def test_training_lengths_are_compared_on_curves_through_the_same_strengths() -> None:
    size = replace(SIZES["2k"], training_samples=400, other_training_samples=(100,))
    results = [
        {**each, "training_samples": samples}
        for samples in (100, 400)
        for seed in (0, 1)
        for each in curves(seed)
    ]
    assert of_full_length(size, results) == results[len(results) // 2 :]
    finer = [
        {**result("C2R", 3, seed, composition=0.35, f1=0.1), "training_samples": 400}
        for seed in (0, 1)
    ]
    assert lengths_table(size, [*results, *finer]) == lengths_table(size, results)


@pytest.mark.parametrize("gate", LAMBDAS)
def test_the_rule_of_lambda_is_the_librarys(gate: Any) -> None:
    setting = Setting("hierarchy", 128, 512, 96, 1.0)
    found = rules(setting, 3.0, gate)
    assert found["the rule"] == pytest.approx(
        3.0 * transfer_factor(batch_size=128, d_sae=512, d_in=96, chunk_size=8192, gate=gate)
    )
    assert found["none"] == 1
