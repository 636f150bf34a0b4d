"""The command line itself."""

import pytest

import sae_lens_c2r
from sae_lens_c2r._support.errors import counted
from sae_lens_c2r.cli import main
from sae_lens_c2r.releases.files import shipped_releases
from sae_lens_c2r.releases.model import Release


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_code:
        main(["--version"])
    assert exit_code.value.code == 0
    assert capsys.readouterr().out == f"sae-lens-c2r {sae_lens_c2r.__version__}\n"


@pytest.mark.parametrize("command", [[], ["inspect"], ["registry", "show"]])
def test_help_is_asked_for_in_two_ways(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for option in ("-h", "--help"):
        with pytest.raises(SystemExit) as left:
            main([*command, option])
        assert left.value.code == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert "Usage" in shown[0]


@pytest.mark.parametrize("release", shipped_releases(), ids=lambda release: release.name)
def test_ids_are_not_broken_in_80_columns(
    release: Release, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["registry", "list"])
    shown = capsys.readouterr().out
    assert f" {release.name} " in shown
    assert f" {release.repo_id} " in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0 SAEs"),
        (0.9, "1 SAE"),
        (1, "1 SAE"),
        (1.2, "1 SAE"),
        (2, "2 SAEs"),
        (1234, "1,234 SAEs"),
    ],
)
def test_a_noun_is_of_its_number(number: float, said: str) -> None:
    assert counted(number, "SAE") == said


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
