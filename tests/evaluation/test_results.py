"""Reading what evaluations wrote, without SAEBench."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.writing import write_json
from sae_lens_c2r.cli.app import _repeat_option
from sae_lens_c2r.evaluation.about import About, Asked
from sae_lens_c2r.evaluation.catalog import COLUMNS, EVALUATIONS
from sae_lens_c2r.evaluation.report import EvaluatedSAE, EvaluationReport, gather, read_report
from sae_lens_c2r.evaluation.results import is_answered, read_metrics, write_result
from sae_lens_c2r.evaluation.table import markdown_table, rows, terminal_tables
from tests import forkserver

CORE = {
    "eval_type_id": "core",
    "eval_result_metrics": {
        "model_behavior_preservation": {"kl_div_score": 0.97, "kl_div_with_sae": -1},
        "misc_metrics": {"frac_alive": 1, "freq_over_1_percent": None},
    },
}


def about(evaluation: str = "core", *, name: str = "saes/a", **changes: object) -> About:
    asked = {
        "weights_sha256": "0" * 64,
        "config_sha256": "1" * 64,
        "evaluation": evaluation,
        "model": "gemma-2-2b",
        "text": None,
        "settings": {"sizes": (1, 2)},
        "inputs": {},
    }
    return About(
        asked=Asked(**{**asked, **changes}),
        name=name,
        architecture="jumprelu",
        trained_as="batchtopk_c2r",
        d_in=4,
        d_sae=8,
        device="cpu",
        versions={},
        seconds=1.0,
    )


def test_only_finite_numbers_are_metrics(tmp_path: Path) -> None:
    path = tmp_path / "core.json"
    path.write_text(json.dumps(CORE))
    metrics, missing = read_metrics(path, "core")
    assert metrics == {
        "model_behavior_preservation.kl_div_score": 0.97,
        "misc_metrics.frac_alive": 1,
    }
    assert missing == ["model_behavior_preservation.kl_div_with_sae"]
    found = {"a": float("nan"), "b": -1, "c": "", "d": 10**400}
    path.write_text(json.dumps({"eval_type_id": "tpp", "eval_result_metrics": found}))
    assert read_metrics(path, "tpp") == ({"b": -1}, ["a", "d"])


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", '{"eval_result_metrics": {}}', "null"),
        '{"eval_type_id": "core", "eval_result_metrics": "x"}',
        '{"eval_type_id": "core", "eval_result_metrics": {"a": NaN, "b": -1}}',
        '{"eval_type_id": "scr", "eval_result_metrics": {"a": 1}}',
    ],
)
def test_other_files_are_not_results(tmp_path: Path, content: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"should (be a result of|have a finite number)"):
        read_metrics(path, "core")
    with pytest.raises(UserError, match="written by `sae-lens-c2r evaluate`"):
        read_report(path)


def test_a_result_answers_what_was_asked(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "core"
    assert not is_answered(folder, about().asked)
    write_result(folder, about(), CORE)
    assert is_answered(folder, about().asked)
    for change in (
        {"settings": {"sizes": (1, 3)}},
        {"weights_sha256": "1" * 64},
        {"config_sha256": "2" * 64},
        {"model": "gemma-2-9b"},
        {"text": "a.txt"},
        {"inputs": {"/a": "b"}},
        {"evaluation": "scr"},
    ):
        assert not is_answered(folder, about(**change).asked), change


@pytest.mark.parametrize(
    "wrong", ["{}", '{"seconds": NaN', '{"name": 7', "nonsense", '{"versions": {"a": 1}']
)
def test_what_is_said_wrongly_is_not_said(tmp_path: Path, wrong: str) -> None:
    write_result(tmp_path / "a" / "core", about(), CORE)
    path = tmp_path / "a" / "core" / "about.json"
    said = json.loads(path.read_text())
    if wrong.endswith(("N", "7", "}")) and wrong != "{}":
        said |= json.loads(wrong + "}")
        wrong = json.dumps(said)
    path.write_text(wrong)
    gathered = gather(tmp_path)
    assert gathered.saes == []
    write_json(tmp_path / "evaluation.json", gathered.model_dump(mode="json"))


def test_what_cannot_be_written_replaces_nothing(tmp_path: Path) -> None:
    write_result(tmp_path, about(), CORE)
    with pytest.raises(ValueError, match="JSON"):
        write_result(tmp_path, about(settings={"x": float("nan")}), {"other": 1})
    assert is_answered(tmp_path, about().asked)


def test_what_ends_amid_a_replacement_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is said of a result that is not the one that it was said of."""
    write_result(tmp_path, about(), CORE)

    def fail(path: Path, content: dict) -> None:
        if path.name == "about.json":
            raise OSError("The disk is full.")
        write_json(path, content)

    monkeypatch.setattr("sae_lens_c2r.evaluation.results.write_json", fail)
    with pytest.raises(OSError, match="full"):
        write_result(tmp_path, about(weights_sha256="9" * 64), CORE)
    assert not is_answered(tmp_path, about().asked)


def test_everything_is_gathered_that_is_whole(tmp_path: Path) -> None:
    write_result(tmp_path / "a" / "core", about(), CORE)
    write_result(
        tmp_path / "a" / "weights", about("weights"), {**CORE, "eval_type_id": "weights"}
    )
    write_result(tmp_path / "b" / "core", about(name="saes/b"), CORE)
    (tmp_path / "b" / "core" / "result.json").write_text("cut")
    gathered = gather(tmp_path)
    (sae,) = gathered.saes
    assert sae.name == "saes/a"
    assert set(sae.evaluations) == {"weights", "core"}
    assert sae.evaluations["core"].source == "a/core/result.json"
    content = gathered.model_dump(mode="json")
    write_json(tmp_path / "evaluation.json", content)
    assert read_report(tmp_path / "evaluation.json") == gathered
    ((name, cells),) = rows(gathered)
    assert (name, cells) == ("saes/a", {"KL score": "0.970"})
    assert markdown_table(gathered).startswith("| SAE | KL score ↑ |\n| --- | --: |\n")
    assert "| saes/a | 0.970 |\n" in markdown_table(gathered)
    [table] = terminal_tables(gathered)
    assert [str(column.header) for column in table.columns] == ["SAE", "KL\nscore\n↑"]
    write_json(tmp_path / "evaluation.json", {**content, "format": 7})
    with pytest.raises(UserError, match="`format`: Input should be 1"):
        read_report(tmp_path / "evaluation.json")


def test_names_are_shown_as_they_are() -> None:
    def sae(name: str, weights: str) -> EvaluatedSAE:
        return EvaluatedSAE(name=name, weights_sha256=weights, config_sha256="", evaluations={})

    gathered = EvaluationReport(
        saes=[sae("[/k=3] a|b", "0"), sae("c", "12345678ab"), sae("c", "2")]
    )
    assert [name for name, _ in rows(gathered)] == ["[/k=3] a|b", "c (12345678)", "c (2)"]
    assert "| [/k=3] a\\|b |" in markdown_table(gathered)
    with Console(file=StringIO(), width=120) as console:
        console.print(*terminal_tables(gathered))
    assert "[/k=3] a|b" in console.file.getvalue()  # type: ignore[attr-defined]


def test_every_column_is_of_an_evaluation() -> None:
    for column in COLUMNS:
        assert column.evaluation in (*EVALUATIONS, "weights", "sae_lens", "known_features")


def test_what_was_measured_has_a_column_and_nothing_else_has() -> None:
    quality = {"reconstruction_quality.explained_variance": 0.8125, "sparsity.l0": 31.96}
    recovered = {"explained_variance": 0.5, "l0": 3.0, "mcc": 0.75}

    def sae(name: str, evaluation: str, metrics: dict[str, float]) -> EvaluatedSAE:
        evaluations = {evaluation: {"metrics": metrics}}
        return EvaluatedSAE(
            name=name, weights_sha256="", config_sha256="", evaluations=evaluations
        )

    saes = [sae("a", "sae_lens", quality), sae("b", "known_features", recovered)]
    lines = markdown_table(EvaluationReport(saes=saes)).splitlines()
    assert lines[0] == "| SAE | explained variance ↑ | L0 | MCC ↑ |"
    assert lines[2:4] == ["| a | 0.812 | 32.0 |  |", "| b | 0.500 | 3.0 | 0.750 |"]
    assert "MCC: " in lines[-1]
    assert "SCR" not in lines[-1]
    of_core = markdown_table(EvaluationReport(saes=[sae("c", "core", quality)]))
    assert "| c | 0.812 | 32.0 |" in of_core


def test_reading_needs_no_sae_bench() -> None:
    program = (
        "import sys; sys.modules['sae_bench'] = None; import sae_lens_c2r.evaluation.results, "
        "sae_lens_c2r.evaluation.table, sae_lens_c2r.evaluation.evaluate"
    )
    ran = forkserver.run("-c", program, level=forkserver.LIBRARIES)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("arguments", "spread"),
    [
        ("evaluate a b", "evaluate a b"),
        ("a --x core scr --model m", "a --x core --x scr --model m"),
        ("a --x core --x scr", "a --x core --x scr"),
        ("a --x=core scr", "a --x=core --x scr"),
        ("--x core scr tests --y", "--x core --x scr tests --y"),
        ("a --x", "a --x"),
        ("a --x --model m", "a --x --model m"),
    ],
)
def test_an_option_takes_several_values(arguments: str, spread: str) -> None:
    assert _repeat_option(arguments.split(), "--x") == spread.split()
