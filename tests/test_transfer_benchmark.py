"""The experiment behind lambda that transfers: its runs, its rules, and what is kept of it."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import pytest

from benchmarks.page import fill
from benchmarks.parallel import read
from benchmarks.transfer.__main__ import PAGE, RUNS, tables
from benchmarks.transfer.report import read_curves
from benchmarks.transfer.rules import FACTORS, LAMBDAS, Setting, factors, rules
from benchmarks.transfer.sweep import Run, hierarchy_runs, key, minilm_runs, missing
from sae_lens_c2r.penalties import transfer_factor
from sae_lens_c2r.penalties.gates import Gate

GATES: tuple[Gate, ...] = ("relu", "excess")


def wanted(gate: Gate) -> list[Run]:
    return [*hierarchy_runs(gate), *minilm_runs(gate)]


def test_every_gate_that_has_a_rule_of_its_own_is_swept() -> None:
    assert set(GATES) == set(LAMBDAS) == set(FACTORS) == set(get_args(Gate)) - {"none"}


@pytest.mark.parametrize("gate", GATES)
def test_the_rule_is_the_librarys(gate: Gate) -> None:
    found = rules(Setting("hierarchy", 128, 512, 96, 1.0), 3.0, gate)
    assert found["the rule"] == pytest.approx(
        3.0 * transfer_factor(batch_size=128, d_sae=512, d_in=96, chunk_size=8192, gate=gate)
    )
    assert len(found) == 6
    assert found["none"] == 1


def test_a_factor_can_be_left_out_or_added() -> None:
    setting = Setting("hierarchy", 128, 512, 96, 1.0)
    parts = factors(setting, 3.0)
    whole, above = rules(setting, 3.0, "relu"), rules(setting, 3.0, "excess")
    assert whole["without d"] * parts["d"] == pytest.approx(whole["the rule"])
    assert above["the rule"] * parts["d"] == pytest.approx(above["with d"])
    assert math.prod(parts.values()) == pytest.approx(whole["the rule"])


def test_lambda_0_is_trained_once_for_all_gates() -> None:
    relu, excess = (set(wanted(gate)) for gate in GATES)
    assert relu & excess == {run for run in relu if run.lambda_ == 0}


def test_results_that_are_kept_are_of_runs_that_are_wanted() -> None:
    results = read(RUNS)
    runs = {key(asdict(run)) for gate in GATES for run in wanted(gate)}
    assert {key(result) for result in results} <= runs
    assert not [run for gate in GATES for run in missing(wanted(gate), RUNS)]


def test_the_page_shows_the_results_that_are_kept() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert fill(text, tables()) == text


def test_a_seed_counts_once_every_lambda_of_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    setting = asdict(Setting("hierarchy", 128, 512, 96, 1.0))
    measured = {"composition": 0.4, "chance_composition": 0.3, "explained_variance": 0.9}

    def result(gate: Gate, lambda_: float, seed: int) -> dict[str, Any]:
        about = {"setting": setting, "lambda_": lambda_, "seed": seed, "gate": gate}
        return {**about, **measured, "literal_coefficient": lambda_, "norm": 1.0 + seed}

    results = [result("relu", 0.0, seed) for seed in (0, 1)]
    results += [result("excess", lambda_, 0) for lambda_ in LAMBDAS["excess"][1:]]
    results += [result("excess", LAMBDAS["excess"][1], 1)]
    path.write_text("\n".join(map(json.dumps, results)))
    (curve,) = read_curves(path, "excess")
    assert curve.norm == 1.0  # that of seed 0
    assert [*curve.literal] == [*LAMBDAS["excess"]]
    assert read_curves(path, "relu") == []
