"""Reading what evaluations wrote, without SAEBench."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sae_lens_c2r.cli import _repeat_option
from sae_lens_c2r.errors import UserError
from sae_lens_c2r.evaluation.catalog import COLUMNS, EVALUATIONS
from sae_lens_c2r.evaluation.results import (
    About,
    gather,
    read_about,
    read_gathered,
    read_metrics,
    write_json,
    write_result,
)
from sae_lens_c2r.evaluation.table import markdown_table, rows

CORE = {
    "eval_type_id": "core",
    "eval_result_metrics": {
        "model_behavior_preservation": {"kl_div_score": 0.97, "kl_div_with_sae": -1},
        "misc_metrics": {"frac_alive": 1, "freq_over_1_percent": None},
    },
}


def about(evaluation: str = "core", **changes: object) -> About:
    values = {
        "name": "saes/a",
        "weights_sha256": "0" * 64,
        "architecture": "jumprelu",
        "trained_as": "batchtopk_c2r",
        "d_in": 4,
        "d_sae": 8,
        "evaluation": evaluation,
        "model": "gemma-2-2b",
        "settings": {"sizes": (1, 2)},
        "versions": {},
        "seconds": 1.0,
        "device": "cpu",
    }
    return About(**{**values, **changes})


def test_only_numbers_are_metrics(tmp_path: Path) -> None:
    path = tmp_path / "core.json"
    path.write_text(json.dumps(CORE))
    metrics, missing = read_metrics(path)
    assert metrics == {
        "model_behavior_preservation.kl_div_score": 0.97,
        "misc_metrics.frac_alive": 1,
    }
    assert missing == ["model_behavior_preservation.kl_div_with_sae"]
    other = {
        "eval_type_id": "tpp",
        "eval_result_metrics": {"a": float("nan"), "b": -1, "c": ""},
    }
    path.write_text(json.dumps(other))
    assert read_metrics(path) == ({"b": -1}, ["a"])


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"eval_result_metrics": {}}', "null"])
def test_other_files_are_not_results(tmp_path: Path, content: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(content)
    with pytest.raises(UserError, match="should be a result of SAEBench's"):
        read_metrics(path)
    with pytest.raises(UserError, match="written by `sae-lens-c2r evaluate`"):
        read_gathered(path)


def test_a_result_answers_what_was_asked(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "core"
    assert read_about(folder) is None
    write_result(folder, about(), CORE)
    found = read_about(folder)
    assert found is not None
    assert found.is_of(about(seconds=2.0, device="cuda", name="b"))
    assert not found.is_of(about(settings={"sizes": (1, 3)}))
    assert not found.is_of(about(weights_sha256="1" * 64))
    assert not found.is_of(about(model="gemma-2-9b"))
    (folder / "about.json").write_text("{}")
    assert read_about(folder) is None


def test_everything_is_gathered_that_is_whole(tmp_path: Path) -> None:
    write_result(tmp_path / "a" / "core", about(), CORE)
    write_result(tmp_path / "a" / "weights", about("weights"), {**CORE, "eval_type_id": "w"})
    write_result(tmp_path / "b" / "core", about(name="saes/b"), CORE)
    (tmp_path / "b" / "core" / "result.json").write_text("cut")
    gathered = gather(tmp_path)
    (sae,) = gathered["saes"]
    assert sae["name"] == "saes/a"
    assert list(sae["evaluations"]) == ["weights", "core"]
    assert sae["evaluations"]["core"]["source"] == "a/core/result.json"
    write_json(tmp_path / "evaluation.json", gathered)
    assert read_gathered(tmp_path / "evaluation.json") == gathered
    ((name, cells),) = rows(gathered)
    assert (name, cells) == ("saes/a", ["0.970"] + [""] * 8)
    assert "| saes/a | 0.970 |  |" in markdown_table(gathered)
    write_json(tmp_path / "evaluation.json", {**gathered, "format": 7})
    with pytest.raises(UserError, match="of format 1"):
        read_gathered(tmp_path / "evaluation.json")


def test_every_column_is_of_an_evaluation() -> None:
    for column in COLUMNS:
        assert column.evaluation in (*EVALUATIONS, "weights")


def test_reading_needs_no_sae_bench() -> None:
    program = (
        "import sys; sys.modules['sae_bench'] = None; import sae_lens_c2r.evaluation.results, "
        "sae_lens_c2r.evaluation.table, sae_lens_c2r.evaluation.run"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize(
    ("arguments", "spread"),
    [
        ("evaluate a b", "evaluate a b"),
        ("a --x core scr --model m", "a --x core --x scr --model m"),
        ("a --x core --x scr", "a --x core --x scr"),
        ("a --x=core scr", "a --x=core scr"),
        ("a --x", "a --x"),
        ("a --x --model m", "a --x --model m"),
    ],
)
def test_an_option_takes_several_values(arguments: str, spread: str) -> None:
    assert _repeat_option(arguments.split(), "--x") == spread.split()
