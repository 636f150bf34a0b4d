"""The one place that catches errors: what is printed, and with which status a command ends."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.cli import _shared as shared
from sae_lens_c2r.cli._shared import error_boundary
from tests.command import run_command

FULL = OSError(28, "No space left on device")


def ended(error: BaseException | None, *problems: UserError) -> int:
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
        (UserError("k", "be 1"), [], 1, "`k` should be 1. Go on.\n"),
        (UserError("--set k", "be 1", 2), [], 2, "`--set k` should be 1. Found 2. Go on.\n"),
        (UserError(Path("a.b"), "be 1", of="c"), [], 1, "c: a.b should be 1. Go on.\n"),
        (UserError("the end", more="Or not."), [], 1, "the end Or not. Go on.\n"),
        (FULL, [], 1, "sae-lens-c2r: OSError: [Errno 28] No space left on device Go on.\n"),
        (KeyboardInterrupt(), [], 130, "Interrupted. Go on.\n"),
        (KeyboardInterrupt("Half is there."), [], 130, "Half is there. Go on.\n"),
        (
            UserError("--k", "be 1"),
            [UserError("a"), UserError("b")],
            1,
            "a\nb\n`--k` should be 1. Go on.\n",
        ),
        (None, [UserError("one SAE")], 1, "one SAE\n"),
        (None, [], 0, ""),
    ],
)
def test_an_error_is_a_line_and_a_status(
    error: Any,
    problems: list[UserError],
    status: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended(error, *problems) == status
    assert capsys.readouterr() == ("", says)


@pytest.mark.parametrize(
    ("field", "shown", "status"),
    [
        ("top_k", "`--top-k`", 2),
        ("sae.top_k", "`sae.top_k`", 1),
        ("text", "`text`", 1),  # an argument has no option
        (Path("top_k"), "top_k", 1),
    ],
)
@pytest.mark.parametrize("of", ["", "an SAE"])
def test_a_parameter_is_named_as_an_option_of_the_command(
    field: str | Path, shown: str, status: int, of: str
) -> None:
    ran = run_app(UserError(field, "be at most 5", 8, "Try 4.", of=of))
    named = f"{of}: {shown}" if of else shown
    assert ran.stderr == f"{named} should be at most 5. Found 8. Try 4.\n"
    assert ran.exit_code == (1 if of else status)


def run_app(error: Exception) -> Result:
    """A command that meets an error."""
    app = typer.Typer()

    @app.command(cls=shared.Command)
    def run(top_k: int = shared.option(1, "Latents."), text: str = typer.Argument("")) -> None:
        print(top_k, text)
        with error_boundary():
            raise error

    @app.command(cls=shared.Command)
    def other() -> None:
        pass

    return CliRunner().invoke(app, ["run"])


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (KeyError("a"), "KeyError: 'a'"),
        (RuntimeError("One\nline. And more."), "RuntimeError: One line."),
        (AssertionError(), "AssertionError"),
        (FULL, "OSError: [Errno 28] No space left on device"),
    ],
)
def test_an_error_of_any_library_is_a_line_with_the_command(
    error: Exception, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = run_app(error)
    assert (ran.exit_code, ran.stderr) == (1, f"run: {says}\n")
    monkeypatch.setattr(shared.LineConsole, "debug", True)
    *traceback, last = run_app(error).stderr.splitlines()
    assert last == f"run: {says}"
    assert "Traceback (most recent call last):" in traceback
    assert any("raise error" in line for line in traceback)


def test_a_traceback_is_shown_wherever_it_is_asked_for() -> None:
    command = ("registry", "export", "no")
    for typed in (("--debug", *command), (*command, "--debug"), command):
        ran = run_command(*typed)
        assert ("in find_release" in ran.stderr) == ("--debug" in typed)
        assert ran.stderr.splitlines()[-1].startswith("`release` should be a YAML file")


def test_an_error_of_another_process_keeps_its_parts() -> None:
    error = UserError(Path("a.b"), "be 1", 2, "Try 1.", of="an SAE")
    other = pickle.loads(pickle.dumps(error))
    assert vars(other) == vars(error)
    assert str(other) == str(error) == "an SAE: a.b should be 1. Found 2. Try 1."
