"""SAEs of known features are evaluated against these, and their cards show it."""

import json
from math import isnan
from pathlib import Path
from typing import Any

import pytest
import torch
from sae_lens import SAE
from sae_lens.synthetic import SyntheticModel

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.analysis.metrics import final_metrics
from sae_lens_c2r.analysis.recovery import feature_recovery
from sae_lens_c2r.evaluation.tasks import check_features
from sae_lens_c2r.hub import Submission, write_card
from sae_lens_c2r.releases.configs import synthetic_model_config
from sae_lens_c2r.releases.files import read_release
from sae_lens_c2r.saes.record import SAERecord
from sae_lens_c2r.training.plan import make_plan
from sae_lens_c2r.training.train import train
from tests.command import run_command
from tests.releases.test_files import write

pytestmark = pytest.mark.usefixtures("forked")  # every process of an evaluation
HIERARCHY = {"total_root_nodes": 2, "branching_factor": 3, "max_depth": 1}
CONFIG = {"num_features": 32, "hidden_dim": 8, "seed": 0, "hierarchy": HIERARCHY}
SAMPLES, SEED = 512, 7
SETTINGS = (
    *("--set", f"known_features.samples={SAMPLES}", "--set", f"known_features.seed={SEED}"),
    *("--set", "known_features.batch_size=256", "--device", "cpu"),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SAEs of a release of known features, as `train` leaves them."""
    folder = tmp_path_factory.mktemp("known")
    model = {"training_samples": 1000, "config": CONFIG}
    axes = {"architecture": ["batchtopk", "batchtopk_c2r"]}
    path = write(folder, synthetic_model=model, grids=[{"id": "{architecture}", "axes": axes}])
    plan = make_plan(read_release(path), device="cpu")
    train(plan, folder / "saes", checkpoint_minutes=0)
    return folder / "saes"


def test_training_json_is_all_that_it_needs(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "evaluation"
    ran, again = (run_command("evaluate", trained, "--out", out, *SETTINGS) for _ in range(2))
    assert (ran.returncode, again.returncode) == (0, 0), ran.stderr + again.stderr
    assert "were done before" in again.stderr
    for sae in json.loads((out / "evaluation.json").read_text())["saes"]:
        found = sae["evaluations"]["known_features"]
        torch.manual_seed(SEED)
        expected = feature_recovery(
            SAE.load_from_disk(sae["name"]),
            SyntheticModel(synthetic_model_config(CONFIG)),
            samples=SAMPLES,
            batch_size=256,
        )
        measured = found["metrics"]
        assert measured == pytest.approx(final_metrics("known_features", expected))
        assert set(found["missing"]) == {key for key in expected if isnan(expected[key])}
        assert found["inputs"].keys() == {"training.json"}  # and no place of this machine
        assert {"mcc", "f1", "absorption_by_children", "chance_composition"} <= measured.keys()
    (tmp_path / "text.txt").write_text("words")
    given = ("--model", "gpt2", "--text", tmp_path / "text.txt", "--split", "train")
    ran = run_command("evaluate", trained, "--out", out, *SETTINGS, *given)
    assert "Not used: model, text, split. Known features need no model" in ran.stderr
    submission = Submission([trained], evaluation=out / "evaluation.json")
    card = write_card(submission, tmp_path / "card", repo_id="me/saes").read_text()
    assert f"on {SAMPLES} samples of the features that the SAE was trained on" in card
    assert f"drawn with seed {SEED}" in card
    assert "### Known features" in card


def test_sae_bench_needs_a_language_model(trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("sae_bench")
    arguments = ("--sae-bench", "core", "--no-sae-lens", "--model", "gpt2")
    ran = run_command("evaluate", trained, "--out", tmp_path / "out", *arguments)
    assert ran.returncode == 1
    for sae in trained.glob("b*"):
        assert f"core of {sae}: it needs a language model." in ran.stderr


@pytest.mark.parametrize(
    ("changes", "device", "message"),
    [
        ({"config": {**CONFIG, "seed": None}}, "cpu", "should have a seed"),
        ({"device": "cuda (NVIDIA H200)"}, "cpu", "`device` should be cuda"),
        ({"device": "cpu"}, "cuda", "`device` should be cpu"),
    ],
)
def test_other_features_are_refused(changes: dict[str, Any], device: str, message: str) -> None:
    config, trained_on = changes.get("config", CONFIG), changes.get("device")
    record = SAERecord(source={"config": config}, device=trained_on)
    with pytest.raises(UserError, match=message):
        check_features(record, device)
