"""The command line itself."""

import json
from pathlib import Path

import pytest

from sae_lens_c2r.analysis import composition
from tests.architectures.training import make_sae
from tests.command import run_command


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
