"""The command line itself."""

import json
import os
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import typer

from sae_lens_c2r._support.errors import counted
from sae_lens_c2r.analysis import composition
from sae_lens_c2r.cli._shared import count_option
from sae_lens_c2r.releases.files import shipped_releases
from tests.architectures.training import make_sae
from tests.command import run, run_command
from tests.forkserver import FRESH


@pytest.mark.parametrize("command", ["", "inspect", "train", "upload", "registry new"])
def test_help_is_asked_for_in_two_ways(command: str) -> None:
    short, long = (run_command(*command.split(), option) for option in ("-h", "--help"))
    assert (short.returncode, long.returncode) == (0, 0)
    assert short.stdout == long.stdout
    assert "Usage" in short.stdout
    assert "--help" in short.stdout


def test_tokens_are_counted_as_people_write_them() -> None:
    command = typer.Typer()

    @command.command()
    def show(tokens: int = count_option(5, "Tokens.", least=2)) -> int:
        return tokens

    counts = {"5M": 5_000_000, "400k": 400_000, "1.5b": 1_500_000_000, "20_000": 20_000}
    counts |= {"1e6": 1_000_000, "1.5e3": 1500, "9007199254740993": 2**53 + 1}
    for text, count in counts.items():
        assert command(["--tokens", text], standalone_mode=False) == count
    for text in ("", "M", "-5M", "0", "1", "five", "5MB", "nan", "inf", "1,5M", "2.5"):
        with pytest.raises(typer.BadParameter, match=f"at least 2. Found {re.escape(text)}"):
            command([f"--tokens={text}"], standalone_mode=False)


def test_ids_are_not_broken_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = run_command("registry", "list").stdout
    for release in shipped_releases():
        assert f" {release.name} " in shown
        assert f" {release.repo_id} " in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_results_go_to_the_output_and_progress_elsewhere(tmp_path: Path) -> None:
    sae = tmp_path / "sae"
    make_sae("topk_c2r").save_inference_model(sae)
    command = ("inspect", sae, "--json", "--device", "cpu", "--overwrite", "--out")
    told = run_command(*command, tmp_path / "report.html")
    [numbers] = json.loads(told.stdout)["saes"].values()
    assert numbers["composition"] == pytest.approx(composition(make_sae("topk_c2r").W_dec))
    assert "Loading SAELens" in told.stderr
    for quiet in (("--quiet", *command), (*command[:2], "--quiet", *command[2:])):
        ran = run_command(*quiet, tmp_path / "report.html")
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, told.stdout, "")


def test_plans_are_json_too() -> None:
    name = "minilm-layer-3"
    planned = run_command("train", name, "--dry-run", "--json", "--device", "cpu")
    plan = json.loads(planned.stdout)
    assert plan["release"] == name
    assert plan["samples"] == plan["steps"] * plan["runner"]["train_batch_size_tokens"]


def test_a_pipe_has_whole_lines_and_may_be_closed() -> None:
    command = f"{FRESH} -m sae_lens_c2r registry"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}  # has no box to draw a line by
    environment.pop("COLUMNS", None)
    shell = partial(subprocess.run, shell=True, env=environment, capture_output=True, text=True)
    listed = shell(f"{command} list")
    assert (listed.returncode, listed.stderr) == (0, "")
    for release in shipped_releases():
        assert re.search(f"{release.name}.*sae-lens-c2r/{release.name}", listed.stdout)
    closed = shell(f"{command} export minilm-layer-3 | true")
    assert closed.stderr == ""


def test_a_noun_is_of_its_number() -> None:
    counts = {0: "0 SAEs", 0.9: "1 SAE", 1: "1 SAE", 1.2: "1 SAE", 1234: "1,234 SAEs"}
    assert {number: counted(number, "SAE") for number in counts} == counts


NOTHING: dict[str, Any] = {"return_value.saes": []}


@pytest.mark.parametrize(
    ("typed", "evaluations", "saes"),
    [
        ("--sae-bench core RELEASE ID", ["core"], ["RELEASE", "ID"]),
        ("--sae-bench core,absorption RELEASE ID", ["core", "absorption"], ["RELEASE", "ID"]),
        ("core --sae-bench=b, --sae-bench core,b", ["b", "core"], ["core"]),
    ],
)
def test_evaluations_are_joined_by_commas_and_saes_follow_them(
    typed: str,
    evaluations: list[str],
    saes: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("core").mkdir()
    asked, found = Mock(), Mock(return_value=[])
    monkeypatch.setattr("sae_lens_c2r.evaluation.settings.Options", asked)
    monkeypatch.setattr("sae_lens_c2r.saes.sae_ref.find_saes", found)
    monkeypatch.setattr("sae_lens_c2r.evaluation.evaluate.evaluate", Mock(**NOTHING))
    run("evaluate", *typed.split(), "--device", "cpu")
    assert asked.call_args.kwargs["sae_bench"] == evaluations
    assert found.call_args.args == (saes,)


def test_without_a_command_it_shows_what_there_is() -> None:
    ran = run_command()
    assert "demo" in ran.stdout + ran.stderr
