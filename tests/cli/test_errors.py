"""The one place that catches errors: what is printed, and with which status a command ends."""

from pathlib import Path
from typing import Any

import pytest
import typer

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.cli._shared import error_boundary
from tests.command import run_command
from tests.releases.test_files import write

FULL = OSError(28, "No space left on device")


def ended(error: BaseException | None, *problems: str) -> int:
    """The status of a command that meets an error, and has told of problems before."""
    try:
        with error_boundary("Interrupted.", how_to_go_on=lambda: " Go on.") as told:
            told.extend(problems)
            if error is not None:
                raise error
    except typer.Exit as end:
        return end.exit_code
    return 0


@pytest.mark.parametrize(
    ("error", "problems", "status", "says"),
    [
        (UserError("`k` should be 1."), [], 1, "`k` should be 1.\n"),
        (UserError("`--k` should be 1."), [], 2, "`--k` should be 1.\n"),
        (FULL, [], 1, "[Errno 28] No space left on device Go on.\n"),
        (KeyboardInterrupt(), [], 130, "Interrupted. Go on.\n"),
        (KeyboardInterrupt("Half is there."), [], 130, "Half is there. Go on.\n"),
        (UserError("the end"), ["a", "b"], 1, "a\nb\nthe end\n"),
        (None, ["one SAE"], 1, "one SAE\n"),
        (None, [], 0, ""),
    ],
)
def test_an_error_is_a_line_and_a_status(
    error: Any, problems: list[str], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(error, *problems) == status
    assert capsys.readouterr() == ("", says)


def test_an_error_that_nobody_foresaw_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        ended(ZeroDivisionError())


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [(KeyboardInterrupt(), 130, "Interrupted."), (FULL, 1, "device")],
)
def test_train_says_how_to_go_on_where_there_is_a_checkpoint(
    error: Any, status: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(_plan: Any, out: Path, **_options: Any) -> None:
        if out.name == "begun":
            (out / ".training" / "step-000000003").mkdir(parents=True)
        raise error

    monkeypatch.setattr("sae_lens_c2r.training.train.train", end)
    resume = " `--resume` continues from the last checkpoint."
    for name, advice in (("begun", resume), ("not-begun", "")):
        out = tmp_path / name
        ran = run_command("train", write(tmp_path), "--out", out, "--device", "cpu")
        assert ran.returncode == status
        assert ran.stderr.endswith(f"{says}{advice}\n")


@pytest.mark.parametrize("command", ["inspect", "evaluate", "train"])
@pytest.mark.parametrize("device", ["nowhere", "meta", "hpu", "cuda:99"])
def test_a_device_that_torch_does_not_have_is_named_before_any_work(
    tmp_path: Path, command: str, device: str
) -> None:
    out = tmp_path / "out"
    ran = run_command(command, write(tmp_path), "--out", out, "--device", device)
    assert ran.returncode == 2
    assert "`--device` should be a device that torch has here" in ran.stderr
    assert not out.exists()
