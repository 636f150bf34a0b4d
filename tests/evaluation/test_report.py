"""`evaluation.json` and its table, of the files that evaluations leave."""

import json
import os
from pathlib import Path

import pytest

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import write_json
from sae_lens_c2r.evaluation.report import (
    EvaluationReport,
    last_line,
    read_metrics,
    read_report,
    table_of,
    write_report,
)
from sae_lens_c2r.saes.record import SAERecord, as_document
from tests import forkserver


def sae(name: str, *, digest: str = "0", **metrics: dict[str, float]) -> SAERecord:
    """An SAE with the metrics of its evaluations."""
    return SAERecord(
        name=name,
        weights_sha256=digest,
        config_sha256="1",
        evaluations={key: {"metrics": value} for key, value in metrics.items()},
    )


def test_what_is_being_done_is_at_the_end_of_the_log_that_is_written(tmp_path: Path) -> None:
    assert last_line(tmp_path, since=0) == ""
    for number, name in enumerate(("core", "sae_lens")):
        log = tmp_path / "sae" / name / "log.txt"
        log.parent.mkdir(parents=True)
        log.write_text(f"begun\n{name}: 0%\r{name}: 50%\r \n")
        os.utime(log, (number, number))
    assert last_line(tmp_path, since=0) == "sae_lens: 50%"
    assert last_line(tmp_path, since=2) == ""  # of an earlier command


def test_only_finite_numbers_are_metrics(tmp_path: Path) -> None:
    path = tmp_path / "core.json"
    groups = {"a": {"score": 0.97, "none": -1}, "b": {"alive": 1, "unknown": None}}
    path.write_text(json.dumps({"eval_type_id": "core", "eval_result_metrics": groups}))
    assert read_metrics(path, "core") == ({"a.score": 0.97, "b.alive": 1}, ["a.none"])
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
    with pytest.raises(UserError, match=r"result\.json should"):
        read_metrics(path, "core")
    with pytest.raises(UserError, match=r"result\.json should"):
        read_report(path)


@pytest.mark.parametrize(
    "wrong", ["nonsense", "{}", '"seconds": NaN', '"name": 7', '"evaluations": {"core": {}}']
)
def test_everything_is_gathered_that_is_whole(tmp_path: Path, wrong: str) -> None:
    saes = [sae("saes/a", core={"x": 1.0}), sae("saes/a", weights={"composition": 0.5})]
    for number, each in enumerate(saes):
        (tmp_path / "a" / str(number)).mkdir(parents=True)
        write_json(tmp_path / "a" / str(number) / "about.json", as_document(each))
    (tmp_path / "b" / "core").mkdir(parents=True)
    whole = json.dumps(as_document(saes[0]))
    said = wrong if '": ' not in wrong else f"{whole[:-1]}, {wrong}}}"
    (tmp_path / "b" / "core" / "about.json").write_text(said)
    report = write_report(tmp_path)
    assert report.saes == [sae("saes/a", core={"x": 1.0}, weights={"composition": 0.5})]
    path = tmp_path / "evaluation.json"
    assert read_report(path) == report
    assert table_of(report).in_markdown() in (tmp_path / "evaluation.md").read_text()
    write_json(path, {**as_document(report), "format": 7})
    with pytest.raises(UserError, match="`format`"):
        read_report(path)


def test_what_was_copied_without_its_folders_is_kept(tmp_path: Path) -> None:
    """A result that was replaced is not: its folder is there."""
    copied, here = sae("a", core={"x": 1.0}, tpp={"x": 2.0}), sae("b", core={"x": 3.0})
    for each in (copied, here):
        for name, evaluation in each.evaluations.items():
            source = {"source": f"{each.name}-1/{name}-2/result.json"}
            each.evaluations[name] = evaluation.model_copy(update=source)
    (tmp_path / "b-1").mkdir()
    write_json(tmp_path / "evaluation.json", as_document(EvaluationReport(saes=[copied, here])))
    for _ in range(2):
        assert write_report(tmp_path).saes == [copied]
    (tmp_path / "evaluation.json").write_text("nonsense")
    assert write_report(tmp_path).saes == []


def test_a_column_is_of_one_evaluation() -> None:
    """SAELens's and SAEBench's L0 are counted in two ways; a row without the one is blank."""
    saes = [sae("a", sae_lens={"l0": 3.0}, core={"l0": 4.0}), sae("b", core={"l0": 5.0})]
    lines = table_of(EvaluationReport(saes=saes)).in_markdown().splitlines()
    assert lines[2:] == ["| a | 3.0 |", "| b |  |"]


def test_names_are_shown_as_they_are() -> None:
    names = {"[/k=3] a|b": "0", "c": "12345678ab"}
    saes = [sae(name, digest=digest) for name, digest in names.items()]
    report = EvaluationReport(saes=[*saes, sae("c", digest="2")])
    shown = table_of(report, escape=True).in_markdown()
    assert all(f"| {name} |" in shown for name in ("[/k=3] a\\|b", "c (12345678)", "c (2)"))
    [table] = table_of(report).in_terminal()
    assert next(str(cell) for cell in table.columns[0].cells) == "[/k=3] a|b"


def test_what_was_measured_has_a_column_and_nothing_else_has() -> None:
    quality = {"explained_variance": 0.8125, "l0": 31.96}
    measured = {"explained_variance": 0.5, "l0": 3.0, "kl_score": 0.75}
    saes = [sae("a", sae_lens=quality), sae("b", sae_lens=measured)]
    table = table_of(EvaluationReport(saes=saes))
    lines = table.in_markdown().splitlines()
    assert lines[0] == "| SAE | explained variance ↑ | L0 | KL score ↑ |"
    assert lines[2:4] == ["| a | 0.812 | 32.0 |  |", "| b | 0.500 | 3.0 | 0.750 |"]
    assert "SCR" not in table.note
    of_core = table_of(EvaluationReport(saes=[sae("c", core=quality)])).in_markdown()
    assert "| c | 0.812 | 32.0 |" in of_core


def test_reading_needs_no_sae_bench() -> None:
    program = "import sys; sys.modules['sae_bench'] = None; import sae_lens_c2r.evaluation."
    ran = forkserver.run("-c", f"{program}evaluate", level=forkserver.LIBRARIES)
    assert ran.returncode == 0, ran.stderr
