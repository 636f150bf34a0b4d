"""The one place that catches errors: what is printed, and with which status a command ends."""

from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import TypeAdapter
from typer.testing import CliRunner, Result

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.cli import _shared as shared
from sae_lens_c2r.cli._shared import error_boundary
from sae_lens_c2r.releases.model import LanguageModel
from sae_lens_c2r.saes.sae_ref import SAERef
from tests.command import run_command
from tests.saes.forms import make_form

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
        (UserError(Path("a.b"), "be 1", of="c"), [], 1, "c: a.b should be 1. Go on.\n"),
        (FULL, [], 1, "sae-lens-c2r: OSError: [Errno 28] No space left on device Go on.\n"),
        (KeyboardInterrupt(), [], 130, "Interrupted. Go on.\n"),
        (UserError("c"), [UserError("a"), UserError("b")], 1, "a\nb\nc Go on.\n"),
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


def run_app(error: Exception) -> Result:
    """A command that meets an error."""
    app = typer.Typer()

    @app.command(cls=shared.Command)
    def run() -> None:
        with error_boundary():
            raise error

    @app.command(cls=shared.Command)
    def other() -> None:
        pass

    return CliRunner().invoke(app, ["run"])


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (KeyError("a"), "KeyError: 'a'"),
        (RuntimeError("One\nline. And more."), "RuntimeError: One line."),
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


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    make_form("standard", d_in=8, d_sae=16).save_model(tmp_path / "sae")
    assert run_command("inspect", tmp_path / "sae", "--out=~/sae.html").returncode == 0
    assert (tmp_path / "sae.html").is_file()
    assert not (tmp_path / "~").exists()
    source = {"hub_id": "a/b", "hook_name": "a", "context_size": 8, "training_tokens": 9}
    places = {"dataset": "~/a.txt", "name": "~/model"}
    read = LanguageModel.model_validate({**source, **places})
    assert (read.dataset, read.name) == (f"{tmp_path}/a.txt", f"{tmp_path}/model")
    assert TypeAdapter(SAERef).validate_python({"folder": "~/sae"}).folder == tmp_path / "sae"
