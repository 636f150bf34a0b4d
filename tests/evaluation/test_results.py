"""`evaluation.json` and its table."""

import json
from pathlib import Path

import pytest

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import write_json
from sae_lens_c2r.evaluation.results import (
    EvaluationReport,
    is_of_one_text,
    metrics_of,
    read_report,
    table_of,
)
from sae_lens_c2r.saes.record import SAERecord, as_document
from tests import forkserver


def sae(name: str, **metrics: dict[str, float]) -> SAERecord:
    """An SAE with the metrics of its evaluations."""
    return SAERecord(
        name=name,
        weights_sha256="0",
        config_sha256="1",
        evaluations={key: {"metrics": value} for key, value in metrics.items()},
    )


def test_only_finite_numbers_are_metrics() -> None:
    groups = {"a": {"score": 0.97, "none": -1}, "b": {"alive": 1, "unknown": None}}
    assert metrics_of("core", groups) == ({"a.score": 0.97, "b.alive": 1}, ["a.none"])
    found = {"a": float("nan"), "b": -1, "c": "", "d": 10**400}
    assert metrics_of("absorption", found) == ({"b": -1}, ["a", "d"])


@pytest.mark.parametrize("change", ["", '"format": 7'])
def test_a_file_that_is_no_report_is_not_read(tmp_path: Path, change: str) -> None:
    path = tmp_path / "evaluation.json"
    report = EvaluationReport(saes=[sae("saes/a", core={"x": 1.0})])
    write_json(path, as_document(report))
    assert read_report(path) == report
    whole = json.dumps(as_document(report))
    path.write_text(f"{whole[:-1]}, {change}}}" if change else whole[:-9])
    with pytest.raises(UserError, match=r"evaluation\.json should"):
        read_report(path)


def test_a_column_is_of_one_evaluation() -> None:
    """SAELens's and SAEBench's L0 are counted in two ways; a row without the one is blank."""
    saes = [sae("a", sae_lens={"l0": 3.0}, core={"l0": 4.0}), sae("b", core={"l0": 5.0})]
    lines = table_of(EvaluationReport(saes=saes)).in_markdown().splitlines()
    assert lines[2:] == ["| a | 3.0 |", "| b |  |"]


def test_rows_of_other_texts_or_settings_are_told() -> None:
    one, other = (sae(name, sae_lens={"l0": 3.0}) for name in "ab")
    assert is_of_one_text(EvaluationReport(saes=[one, other, sae("c", core={"l0": 5.0})]))
    for change in ({"text": "mine.txt"}, {"settings": {"split": "test"}}):
        evaluation = other.evaluations["sae_lens"].model_copy(update=change)
        changed = other.model_copy(update={"evaluations": {"sae_lens": evaluation}})
        assert not is_of_one_text(EvaluationReport(saes=[one, changed]))


def test_reading_needs_no_sae_bench() -> None:
    program = "import sys; sys.modules['sae_bench'] = None; import sae_lens_c2r.evaluation."
    ran = forkserver.run("-c", f"{program}evaluate", level=forkserver.LIBRARIES)
    assert ran.returncode == 0, ran.stderr
