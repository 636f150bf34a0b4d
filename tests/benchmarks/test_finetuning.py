"""The benchmark of fine-tuning: that it is measured and shown, and that the page shows it."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.finetuning import report, runs
from benchmarks.finetuning.__main__ import PAGE, RESULTS, tables_of
from benchmarks.finetuning.runs import BEFORE, MORE, STEPS, WAYS, Run
from benchmarks.page import fill
from benchmarks.study import world


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the SAE before, and one that is trained on."""
    monkeypatch.setattr(world, "EVALUATION_SAMPLES", world.BATCH)
    monkeypatch.setattr(runs, "WAYS", (WAYS[0], WAYS[2]))


@pytest.mark.usefixtures("two")
def test_a_seed_is_measured_once(tmp_path: Path) -> None:
    run = Run(0, 20, str(tmp_path))
    result = runs.execute(run)
    before, finetuned = result["ways"].values()
    assert before["cosine_median"] == 1
    assert 0.5 < finetuned["cosine_median"] < 1
    record = json.loads((tmp_path / "seed_0/way_1/sae/training.json").read_text())
    assert record["steps"] == 2
    assert record["started_from"]["folder"] == str(tmp_path / "seed_0/way_0/sae")
    assert str(tmp_path) not in json.dumps(result)
    written = [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("cfg.json"))]
    assert runs.execute(run) == result
    assert [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("cfg.json"))] == written


def planted(value: float) -> dict[str, Any]:
    names = [*report._KNOWN, *report._MINILM, *report._KEPT, "chance_composition"]
    return {way.name: {**dict.fromkeys(names, value), "l0": value + 1} for way in WAYS}


def test_tables_have_intervals_and_differences_by_seed() -> None:
    results = [{"seed": seed, "ways": planted(0.1 * seed)} for seed in (1, 2, 3)]
    for result in results:
        result["ways"]["10 % with C2R"]["composition"] -= 0.05
    text = report.known_features(results)
    absolute, to_before, to_more = text.split("Less “")
    assert f"| {BEFORE} | 0.200 ± 0.248 |" in absolute
    for changes in (to_before, to_more):
        assert "| 10 % with C2R | -0.050 ± 0.000 | 0.000 ± 0.000 |" in changes
        assert f"| {BEFORE} |" not in changes
    assert f"| {MORE} | 0.000 ± 0.000 |" in to_before
    assert f"| {MORE} |" not in to_more


def test_the_page_shows_the_results_that_are_kept() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert fill(page, tables_of(RESULTS, steps=STEPS)) == page


def test_what_is_not_measured_is_said_to_be_so(tmp_path: Path) -> None:
    assert set(tables_of(tmp_path, steps=STEPS).values()) == {report.NOT_MEASURED}
