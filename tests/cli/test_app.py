"""The command line itself."""

import pytest

import sae_lens_c2r
from sae_lens_c2r._support.words import counted
from sae_lens_c2r.cli import main


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_code:
        main(["--version"])
    assert exit_code.value.code == 0
    assert capsys.readouterr().out == f"sae-lens-c2r {sae_lens_c2r.__version__}\n"


def test_without_a_command_it_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    output = capsys.readouterr()
    assert "demo" in output.out + output.err


@pytest.mark.parametrize("command", [[], ["train"], ["upload"], ["registry", "new"]])
def test_help_does_not_call_a_flag_a_bool(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    shown = capsys.readouterr().out
    assert "--help" in shown
    assert "bool" not in shown


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 SAEs"), (1, "1 SAE"), (0.9, "1 SAE"), (2, "2 SAEs"), (1234, "1,234 SAEs")],
)
def test_one_is_not_many(number: float, said: str) -> None:
    assert counted(number, "SAE") == said
