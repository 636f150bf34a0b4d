"""The command line itself."""

import pytest

import sae_lens_c2r
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
