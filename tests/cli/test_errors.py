"""The one place that catches errors: what is printed, and with which status a command ends."""

import pytest
import typer

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.cli._shared import error_boundary


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
    ("error", "status", "says"),
    [
        (UserError("`k` should be 1."), 1, "`k` should be 1."),
        (UserError("`--k` should be 1."), 2, "`--k` should be 1."),
        (
            OSError(28, "No space left on device"),
            1,
            "[Errno 28] No space left on device Go on.",
        ),
        (KeyboardInterrupt(), 130, "Interrupted. Go on."),
        (KeyboardInterrupt("Half is there."), 130, "Half is there. Go on."),
    ],
)
def test_an_error_is_a_line_and_a_status(
    error: BaseException, status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(error) == status
    assert capsys.readouterr() == ("", f"{says}\n")


def test_what_went_wrong_before_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(UserError("the end"), "a", "b") == 1
    assert capsys.readouterr().err == "a\nb\nthe end\n"


def test_problems_alone_are_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(None, "one SAE") == 1
    assert capsys.readouterr().err == "one SAE\n"


def test_nothing_is_said_of_what_goes_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(None) == 0
    assert capsys.readouterr() == ("", "")


def test_an_error_that_nobody_foresaw_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        ended(ZeroDivisionError())
