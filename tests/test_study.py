"""The study of the paper's claims: its worlds, its statistics, and how it judges."""

import math

import pytest
from scipy import stats

from benchmarks.page import fill
from benchmarks.parallel import read
from benchmarks.statistics import Interval
from benchmarks.study import world
from benchmarks.study.__main__ import FIGURES, PAGE, RESULTS, all_tables, shortest
from benchmarks.study.claims import CLAIMS
from benchmarks.study.further import FURTHER
from benchmarks.study.judgement import Comparison
from benchmarks.study.runs import (
    METHODS,
    SEEDS,
    STEPS,
    execute,
    key,
    longer_runs_of,
    runs_of,
)
from benchmarks.study.tables import claims_table
from benchmarks.study.world import CHILDREN, REGIMES, World

REGIME = next(iter(REGIMES.values()))


@pytest.mark.parametrize("name", REGIMES)
def test_children_imply_their_parents(name: str) -> None:
    planted = World(REGIMES[name], seed=3)
    assert len(planted.edges) == REGIMES[name].n_features * CHILDREN // (1 + CHILDREN)
    present = planted.model.activation_generator(2000).bool()
    for parent, child in planted.edges:
        assert present[present[:, child], parent].all()


def test_intervals_are_students() -> None:
    values = [0.1, 0.4, 0.2, 0.9, math.nan]
    found = Interval.of(values)
    low, high = stats.t.interval(0.95, 3, loc=0.4, scale=stats.sem([0.1, 0.4, 0.2, 0.9]))
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx(
        (low, high)
    )
    assert Interval.of([1.0, 1.1, 0.9]).sign == 1
    assert Interval.of([-1.0, 1.1, 0.9]).sign == 0
    assert Interval.of([3.0]).half_width == math.inf


@pytest.mark.parametrize(
    ("sign", "mean", "half_width", "verdict"),
    [
        *((-1, -0.2, 0.1, "agrees"), (-1, 0.2, 0.1, "differs"), (-1, -0.1, 0.2, "undecided")),
        *((1, 0.2, 0.1, "agrees"), (1, -0.2, 0.1, "differs")),
        *((0, -0.002, 0.001, "agrees"), (0, 0.5, 0.1, "agrees"), (0, -0.2, 0.1, "differs")),
        *((0, -0.01, 0.02, "undecided"), (0, 1.0, math.inf, "not measured")),
        (-1, math.nan, math.nan, "not measured"),
    ],
)
def test_a_claim_is_judged_by_the_interval_of_the_difference(
    sign: int, mean: float, half_width: float, verdict: str
) -> None:
    claim = Comparison("", "", "composition", ("a", {}), ("b", {}), sign)
    assert claim.verdict(Interval(mean, half_width)) == verdict


def test_differences_are_paired_by_seed_and_sparsity() -> None:
    def result(architecture: str, seed: int, k: int, composition: float) -> dict:
        return {
            "architecture": architecture,
            "options": [],
            "k": k,
            "seed": seed,
            "composition": composition,
        }

    results = [result("a", seed, 6, seed + 0.5) for seed in range(4)]
    results += [result("b", seed, 6, float(seed)) for seed in (3, 1, 2)]
    claim = Comparison("", "", "composition", ("a", {}), ("b", {}), 1)
    found = claim.measured(results)
    assert (found.mean, found.half_width) == pytest.approx((0.5, 0.0))
    results += [result("a", 1, 8, 2.0), result("b", 1, 8, 0.5), result("a", 2, 8, 9.0)]
    found = claim.measured(results)  # seed 1: the mean of 0.5 and 1.5
    expected = Interval.of([0.5, 1.0, 0.5])
    assert (found.mean, found.half_width) == pytest.approx((expected.mean, expected.half_width))


def test_another_is_taken_where_it_comes_to_the_same() -> None:
    def result(name: str, composition: float, mcc: float, **options: float) -> dict:
        return {
            "architecture": name,
            "options": list(options.items()),
            **{"k": 6, "seed": 0, "composition": composition, "mcc": mcc},
        }

    results = [
        result("batchtopk", 0.4, 0.9),
        result("batchtopk_c2r", 0.3, 0.8),
        result("ort", 0.38, 0.85),
        result("ort", 0.1, 0.1, ort_coefficient=4.0),
        result("ort", 0.34, 0.8, ort_coefficient=1.0),
    ]
    claim = Comparison(
        "", "", "mcc", ("batchtopk_c2r", {}), ("ort", {}), 1, equal="composition"
    )
    assert claim.measured(results).mean == pytest.approx(0.8 - (0.8 - 0.7 * 0.04 / 0.24))
    results[1]["composition"] = 0.05  # none of its strengths comes to that
    assert math.isnan(claim.measured(results).mean)


def test_every_claim_is_about_sae_s_that_are_trained() -> None:
    runs = runs_of(REGIME, seeds=2, steps=1)
    assert len({key(vars(run)) for run in runs}) == len(runs)
    trained = {(run.architecture, run.options) for run in runs if run.k == REGIME.ks[0]}
    for claim in (*CLAIMS, *FURTHER):
        for method in filter(None, (claim.of, claim.less)):
            assert (method[0], tuple(method[1].items())) in trained, claim.claim


def test_a_run_is_measured_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "EVALUATION_SAMPLES", 4 * world.BATCH)
    chosen = [
        run
        for run in runs_of(REGIME, seeds=2, steps=3)
        if run.architecture in ("batchtopk", "batchtopk_c2r") and run.k == REGIME.ks[0]
    ]
    results = [execute(run) for run in chosen if not run.options]
    for result in results:
        assert 0 <= result["absorption"] <= 1
        assert result["l0"] > 0
    assert "agrees" in claims_table(results)
    longer = [
        {**each, "steps": 12, "absorption": 0.75 - 0.5 * (each["architecture"] != "batchtopk")}
        for each in results
    ]
    other = {**longer[0], "options": [("c2r_coefficient", 9.0)], "absorption": 9.0}
    elsewhere = {**longer[0], "k": REGIME.ks[1], "absorption": 9.0}
    assert shortest([*results, *longer]) == results
    shown = all_tables([*results, *longer, other, elsewhere])
    found = (
        f"| {REGIME.name} | {REGIME.ks[0]} | 12 | 0.750 ± 0.000 | 0.250 ± 0.000 | nan ± nan | "
    )
    assert f"{found}**agrees** -0.500 ± 0.000 | **not measured**" in shown["lengths"]
    for method in METHODS:
        assert f"| {method}, k {REGIME.ks[0]} |" in shown[REGIME.name]
    for draw in FIGURES.values():
        assert draw(results).axes


def test_the_page_shows_the_results_that_are_kept() -> None:
    results = read(RESULTS / "runs.jsonl")
    first, longer = (
        {
            key(vars(run))
            for regime in REGIMES.values()
            for run in of(regime, seeds=len(SEEDS), steps=STEPS)
        }
        for of in (runs_of, longer_runs_of)
    )
    found = [key(result) for result in results]
    assert first <= set(found) <= first | longer
    assert len(found) == len(set(found))
    page = PAGE.read_text(encoding="utf-8")
    assert fill(page, all_tables(results)) == page
    assert "not measured" not in page


def test_a_page_has_a_place_for_every_table() -> None:
    page = "# A\n<!-- begin a b -->\nold\n<!-- end a b -->\ntext"
    assert fill(page, {"a b": "new"}) == page.replace("old", "new")
    with pytest.raises(ValueError, match=r"marks for \['a b', 'c'\]\. Found \['a b'\]"):
        fill(page, {"a b": "new", "c": ""})
