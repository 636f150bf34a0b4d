"""SAEBench's evaluations, end to end and without network, on a model that is planted."""

import json
import os
import shutil
from importlib.resources import files
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from transformer_lens import HookedTransformer

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.analysis.metrics import final_metrics
from sae_lens_c2r.evaluation import sae_bench
from sae_lens_c2r.evaluation.evaluate import _asked
from sae_lens_c2r.evaluation.settings import EVALUATIONS, Options
from sae_lens_c2r.models.loading import output_of_block
from sae_lens_c2r.models.reading import Reading
from tests import forkserver
from tests.evaluation.planted import MODEL, plant_model, plant_sae, plant_text

pytest.importorskip("sae_bench")

TEXT = "home/text"
BATCHES = "n_eval_reconstruction_batches=2 n_eval_sparsity_variance_batches=2"
SETTINGS = {  # small ones
    "sae_lens": BATCHES,
    "core": f"{BATCHES} context_size=32",
    "absorption": "k_sparse_probe_num_epochs=5 max_k_value=2",
}


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of what SAEBench would download."""
    folder = tmp_path_factory.mktemp("planted")
    plant_model(folder / "home")
    plant_text(folder / TEXT)
    plant_sae(folder / "saes" / "one")
    plant_sae(folder / "saes" / "other", seed=5)
    plant_sae(folder / "of-transformers", hook="gpt_neox.layers.0")
    return folder


def evaluate(
    planted: Path,
    out: Path,
    *evaluations: str,
    saes: str | Path = "saes/one",
    model: str = MODEL,
    also: tuple[object, ...] = (),
    **variables: str,
) -> forkserver.Completed:
    settings = [f"{of}.{each}" for of in evaluations for each in SETTINGS[of].split()]
    settings += [f"core.dataset={planted / TEXT}"] * ("core" in evaluations)
    return forkserver.run(
        *("-m", "sae_lens_c2r", "evaluate", planted / saes, "--out", out),
        *("--sae-bench", ",".join(name for name in evaluations if name != "sae_lens")),
        *["--no-sae-lens"] * ("sae_lens" not in evaluations),
        *("--model", model),
        *(argument for setting in settings for argument in ("--set", setting)),
        *also,
        env={**os.environ, "HF_HOME": str(planted / "home"), **variables},
    )


def measured(out: Path, number: int = 0) -> dict:
    return json.loads((out / "evaluation.json").read_text())["saes"][number]["evaluations"]


DIRECTLY = """
import random, sys
import numpy as np, torch
from pathlib import Path
from sae_lens import SAE
import sae_bench.evals.absorption.main as absorption
import sae_bench.evals.core.main as core
from sae_bench.evals.absorption import common, feature_absorption, vocab

assert common.RESULTS_DIR.is_relative_to(Path.cwd())  # not beside files that others need
in_order = lambda tokenizer: sorted(vocab.get_alpha_tokens(tokenizer))
common.get_alpha_tokens = feature_absorption.get_alpha_tokens = in_order
text, *folders = map(Path, sys.argv[1:])
seed = lambda: [random.seed(42), np.random.seed(42), torch.manual_seed(42)]
for folder in folders:
    saes = [(folder.name, SAE.load_from_disk(folder))]
    seed()
    core.multiple_evals(saes, 2, 2, 16, True, True, True, str(text), 32, "core", device="cpu")
Path("absorption").mkdir()
config = absorption.AbsorptionEvalConfig(
    model_name="MODEL",
    llm_batch_size=512,
    llm_dtype="float32",
    k_sparse_probe_num_epochs=5,
    max_k_value=2,
)
for folder in (folders[0], *folders):  # the second time with the probes of the first
    saes = [(folder.name, SAE.load_from_disk(folder))]
    seed()
    absorption.run_eval(config, saes, "cpu", "absorption", force_rerun=True)
"""


def files_of_sae_bench() -> list[Path]:
    folder = Path(str(files("sae_bench")))
    return sorted(path for path in folder.rglob("*") if path.suffix != ".pyc")


@pytest.mark.parametrize("hook", ["blocks.1.hook_resid_pre", "blocks.0.hook_mlp_out"])
def test_absorption_is_of_the_output_of_a_block(tmp_path: Path, hook: str) -> None:
    reading = Reading(model_name=MODEL, hook_name=hook)
    options = Options(tmp_path, EVALUATIONS, sae_lens=False)
    assert _asked("core", reading, options)["model"] == MODEL
    with pytest.raises(UserError, match="should be like blocks"):
        _asked("absorption", reading, options)


def test_numbers_are_sae_bench_s_own(planted: Path, tmp_path: Path) -> None:
    before, out = files_of_sae_bench(), tmp_path / "out"
    text = ("--text", planted / TEXT / "train.jsonl")
    ran = evaluate(planted, out, "sae_lens", *EVALUATIONS, saes="saes", also=text)
    assert ran.returncode == 0, ran.stderr
    found, other = measured(out), measured(out, 1)
    assert set(found) == set(other) == {"weights", "sae_lens", *EVALUATIONS}
    assert "absorption: started, 2 SAEs." in ran.stderr
    log = (out / "absorption.log").read_text(encoding="utf-8")
    assert log.count("Processing train tokens:   0%") == 1  # of probes that both share
    assert not list(out.glob(".working-*"))
    for name, evaluation in found.items():
        assert evaluation["metrics"], name
        assert evaluation["versions"]["sae-bench"]
    assert found["core"]["settings"]["n_eval_reconstruction_batches"] == 2
    assert 0 <= found["sae_lens"]["metrics"]["dead_latents"] < 1
    together = found["sae_lens"]["metrics"]["co_firing"]
    assert 0 < found["sae_lens"]["metrics"]["co_firing_chance"] < together < 1
    assert f"{together:.3f}" in ran.stdout
    assert "0.295" in ran.stdout  # the composition, in the table
    assert files_of_sae_bench() == before

    directly = tmp_path / "directly"
    ignored = shutil.ignore_patterns("artifacts", "__pycache__")
    shutil.copytree(str(files("sae_bench")), directly / "sae_bench", ignore=ignored)
    program = ("-c", DIRECTLY.replace("MODEL", MODEL), planted / TEXT)
    program += (planted / "saes" / "one", planted / "saes" / "other")
    home = {"HF_HOME": str(planted / "home")}
    alone = forkserver.run(*program, cwd=directly, env={**os.environ, **home})
    assert alone.returncode == 0, alone.stderr
    for name, (sae, of_sae) in product(EVALUATIONS, {"one": found, "other": other}.items()):
        path = directly / name / f"{sae}_custom_sae_eval_results.json"
        theirs = final_metrics(name, json.loads(path.read_text())["eval_result_metrics"])
        for metric, value in theirs.items():
            ours = of_sae[name]["metrics"].get(metric)
            assert ours == (None if value == -1 else value), metric
    absorbed = found["absorption"]["metrics"]
    for score in ("absorption", "full_absorption"):
        letters = [absorbed[key] for key in absorbed if key.startswith(f"by_letter.{score}.")]
        assert absorbed[score] == pytest.approx(sum(letters) / len(letters))

    again = evaluate(planted, out, *EVALUATIONS, also=("--set", "core.context_size=16"))
    assert again.returncode == 0, again.stderr
    assert "1 of 2 evaluations were done before." in again.stderr
    assert measured(out)["core"]["settings"]["context_size"] == 16
    assert measured(out)["absorption"] == found["absorption"]

    [model] = (planted / "home" / "hub").glob(f"*{MODEL}/snapshots/*")
    twin, model_files = tmp_path / "twin", sorted(model.iterdir())
    bridged = evaluate(planted, twin, *EVALUATIONS, saes="of-transformers", model=str(model))
    assert bridged.returncode == 0, bridged.stderr
    assert sorted(model.iterdir()) == model_files
    core, absorption = (measured(twin)[name]["metrics"] for name in EVALUATIONS)
    assert core == pytest.approx(found["core"]["metrics"], abs=1e-3)
    # Its probes are trained on words in another order.
    assert absorption.keys() == found["absorption"]["metrics"].keys()
    probes = "probes_f1"
    assert absorption[probes] == pytest.approx(found["absorption"]["metrics"][probes], abs=0.02)


def test_saebench_reads_no_module_of_transformers_but_blocks() -> None:
    assert output_of_block("model.layers.9") == ("blocks.9.hook_resid_post", 9)
    for module in ("model.layers.5.mlp.experts.3", "model.layers.4.mlp", "model.norm"):
        with pytest.raises(UserError, match="should be a block"):
            output_of_block(module)


def test_the_model_is_loaded_as_the_sae_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """SAEBench's core alone passes these options on."""
    load = Mock()
    monkeypatch.setattr(HookedTransformer, "from_pretrained_no_processing", load)

    def run(saes: Any, device: str) -> None:
        saes.n_done = len(saes)
        HookedTransformer.from_pretrained_no_processing("gpt2", device=device, dtype="float32")

    monkeypatch.setattr(sae_bench, "_entry_point", lambda *_: run)
    options = {"center_writing_weights": True, "dtype": "bfloat16", "n_devices": 2}
    reading = Reading(model_name="gpt2", model_from_pretrained_kwargs=options)
    task: Any = SimpleNamespace(reading=reading, asked=SimpleNamespace(device="cpu"))
    request = SimpleNamespace(trust_remote_code=False, tasks=[task])
    monkeypatch.setattr(sae_bench._Request, "model_validate_json", lambda _: request)
    sae_bench.run_request("", Mock())
    load.assert_called_once_with(
        "gpt2", center_writing_weights=True, device="cpu", dtype="float32"
    )


def test_what_core_calls_explained_variance_is_not_ours() -> None:
    """It takes the mean square for the variance."""
    found = {"reconstruction_quality.explained_variance": 0.5}
    assert "explained_variance" not in final_metrics("core", found)


def test_what_fails_is_told_and_does_not_stop_the_others(planted: Path, tmp_path: Path) -> None:
    """SAEBench itself goes on after some failures as if there were none."""
    saes, out = tmp_path / "saes", tmp_path / "out"
    plant_sae(saes / "other-hook", hook="blocks.7.hook_resid_post")
    plant_sae(saes / "whole")
    no_probes = ("--set", "absorption.min_GT_probe_f1=1", "--quiet")
    ran = evaluate(planted, out, *EVALUATIONS, saes=saes, also=no_probes)
    assert ran.returncode == 1
    of_absorption, swallowed, of_core = sorted(ran.stderr.strip().splitlines())
    for name, line in {"absorption": of_absorption, "core": of_core}.items():
        assert line.startswith(f"{name} of {saes}/other-hook: ")
        assert line.endswith(f"Log: {out}/{name}.log")
    told = "SAEBench could not evaluate the SAE, and the log says why."
    assert swallowed == f"absorption of {saes}/whole: {told} Log: {out}/absorption.log"
    assert "insufficent first-letter features" in (out / "absorption.log").read_text()
    report = json.loads((out / "evaluation.json").read_text())
    by_name = {Path(sae["name"]).name: set(sae["evaluations"]) for sae in report["saes"]}
    assert by_name == {"whole": {"weights", "core"}, "other-hook": {"weights"}}
