"""SAEBench's evaluations, end to end and without network, on a model that is planted."""

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from sae_lens_c2r.cli import main
from tests import forkserver
from tests.evaluation.planted import MODEL, RAVEL_MODEL, plant_datasets, plant_model, plant_sae

pytest.importorskip("sae_bench")

BIOGRAPHIES = '["LabHC/bias_in_bios_class_set1"]'
PAIRS = '{"LabHC/bias_in_bios_class_set1": [["professor", "nurse"]]}'
SCR_AND_TPP = (
    f"dataset_names={BIOGRAPHIES}",
    "train_set_size=64",
    "test_set_size=32",
    "context_length=32",
    "n_values=[2, 20]",
    "probe_epochs=5",
)
SETTINGS = {  # small ones
    "core": (
        "context_size=32",
        "n_eval_reconstruction_batches=2",
        "n_eval_sparsity_variance_batches=2",
    ),
    "absorption": ("k_sparse_probe_num_epochs=5",),
    "scr": (*SCR_AND_TPP, f"column1_vals_lookup={PAIRS}"),
    "tpp": SCR_AND_TPP,
    "sparse_probing": (
        f"dataset_names={BIOGRAPHIES}",
        "probe_train_set_size=64",
        "probe_test_set_size=32",
        "context_length=32",
    ),
    "ravel": (
        'entity_attribute_selection={"city": ["Country", "Continent"]}',
        "num_pairs_per_attribute=40",
        "llm_batch_size=8",
        "llm_dtype=float32",
        "n_generated_tokens=1",
        "top_n_entities=40",
    ),
    "autointerp": (
        "total_tokens=2000",
        "n_latents=2",
        "llm_context_size=32",
        "dead_latent_threshold=1",
    ),
    "sae_lens": ("n_eval_reconstruction_batches=2", "n_eval_sparsity_variance_batches=2"),
}
EVALUATIONS = tuple(SETTINGS)[:5]


class Planted(NamedTuple):
    """Where what SAEBench would download lies."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "HF_HOME": str(self.folder / "home")}

    @property
    def text(self) -> Path:
        return self.folder / "data" / "text"

    def settings(self, *evaluations: str) -> list[str]:
        chosen = [f"{name}.{each}" for name in evaluations for each in SETTINGS[name]]
        chosen += [f"core.dataset={self.text}"] * ("core" in evaluations)
        return [argument for setting in chosen for argument in ("--set", setting)]

    def evaluate(
        self, out: Path, *arguments: str | Path, **variables: str
    ) -> forkserver.Completed:
        command = ("-m", "sae_lens_c2r", "evaluate", *arguments, "--out", out)
        return forkserver.run(*command, env={**self.environment, **variables})


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    folder = tmp_path_factory.mktemp("planted")
    plant_model(folder / "home")
    plant_datasets(folder / "data")
    plant_sae(folder / "sae")
    return Planted(folder)


def measured(out: Path, sae: int = 0) -> dict:
    return json.loads((out / "evaluation.json").read_text())["saes"][sae]["evaluations"]


DIRECTLY = """
import random, sys
import numpy as np, torch
from pathlib import Path
from sae_lens import SAE
from sae_lens_c2r.evaluation.worker import _own_sae_bench

_own_sae_bench(Path('modules'))  # and not that of somebody who may need the probes in it
import sae_bench.evals.absorption.main as absorption
import sae_bench.evals.core.main as core
from sae_bench.evals.absorption import common, feature_absorption, vocab

in_order = lambda tokenizer: sorted(vocab.get_alpha_tokens(tokenizer))
common.get_alpha_tokens = feature_absorption.get_alpha_tokens = in_order
sae, text = sys.argv[1:]
seed = lambda: [random.seed(42), np.random.seed(42), torch.manual_seed(42)]
saes = [("sae", SAE.load_from_disk(sae))]
seed()
core.multiple_evals(
    saes, 2, 2, 16, True, True, True, text, 32, "core",
    device="cpu",
)
Path("absorption").mkdir()
saes = [("sae", SAE.load_from_disk(sae))]
seed()
config = absorption.AbsorptionEvalConfig(
    model_name="MODEL", llm_batch_size=512, llm_dtype="float32", k_sparse_probe_num_epochs=5
)
absorption.run_eval(config, saes, "cpu", "absorption")
"""


def files_of_sae_bench() -> list[Path]:
    found = find_spec("sae_bench")
    assert found is not None
    assert found.submodule_search_locations is not None
    (folder,) = found.submodule_search_locations
    return sorted(path for path in Path(folder).rglob("*") if path.suffix != ".pyc")


def test_numbers_are_sae_bench_s_own(planted: Planted, tmp_path: Path) -> None:
    before = files_of_sae_bench()
    ran = planted.evaluate(
        tmp_path / "out",
        planted.folder / "sae",
        *("--sae-bench", *EVALUATIONS),
        *("--text", planted.text / "train.jsonl", "--data", planted.folder / "data"),
        *("--model", MODEL, "--jobs", "2", *planted.settings("sae_lens", *EVALUATIONS)),
    )
    assert ran.returncode == 0, ran.stderr
    found = measured(tmp_path / "out")
    assert set(found) == {"weights", "sae_lens", *EVALUATIONS}
    for name, evaluation in found.items():
        assert evaluation["metrics"], name
        assert (tmp_path / "out" / evaluation["source"]).is_file()
        assert evaluation["versions"]["sae-bench"]
    assert found["core"]["settings"]["n_eval_reconstruction_batches"] == 2
    together = found["sae_lens"]["metrics"]["co_firing.highest_jaccard"]
    assert 0 < found["sae_lens"]["metrics"]["co_firing.chance"] < together < 1
    assert f"{together:.3f}" in ran.stdout
    assert "0.295" in ran.stdout  # the composition, in the table
    assert files_of_sae_bench() == before

    directly = tmp_path / "directly"
    directly.mkdir()
    program = DIRECTLY.replace("MODEL", MODEL)
    arguments = ("-c", program, planted.folder / "sae", planted.text)
    alone = forkserver.run(*arguments, cwd=directly, env=planted.environment)
    assert alone.returncode == 0, alone.stderr
    for name in ("core", "absorption"):
        theirs = json.loads((directly / name / "sae_custom_sae_eval_results.json").read_text())
        for group, metrics in theirs["eval_result_metrics"].items():
            for metric, value in metrics.items():
                ours = found[name]["metrics"].get(f"{group}.{metric}")
                assert ours == (None if value == -1 else value), metric

    again = planted.evaluate(
        tmp_path / "out",
        planted.folder / "sae",
        *("--sae-bench", *EVALUATIONS, "--no-sae-lens", "--model", MODEL),
        *("--data", planted.folder / "data", *planted.settings(*EVALUATIONS)),
        *("--set", "core.context_size=16"),
    )
    assert again.returncode == 0, again.stderr
    assert "4 of 5 evaluations were done before." in again.stdout
    assert measured(tmp_path / "out")["core"]["settings"]["context_size"] == 16
    assert measured(tmp_path / "out")["scr"] == found["scr"]


def test_ravel_runs_on_today_s_transformers(planted: Planted, tmp_path: Path) -> None:
    prompts = planted.folder / "home" / "ravel"
    before = sorted(prompts.rglob("*"))
    ran = planted.evaluate(
        tmp_path / "out",
        planted.folder / "sae",
        *("--no-sae-lens", "--sae-bench", "ravel", "--model", f"EleutherAI/{RAVEL_MODEL}"),
        *("--data", prompts, *planted.settings("ravel")),
    )
    assert ran.returncode == 0, ran.stderr
    metrics = measured(tmp_path / "out")["ravel"]["metrics"]
    assert 0 <= metrics["ravel.disentanglement_score"] <= 1
    assert sorted(prompts.rglob("*")) == before


def test_what_fails_does_not_stop_the_others(planted: Planted, tmp_path: Path) -> None:
    saes = tmp_path / "saes"
    corrupt = plant_sae(saes / "corrupt")
    (corrupt / "sae_weights.safetensors").write_bytes(b"not safetensors")
    plant_sae(saes / "other-width", d_in=32)
    plant_sae(saes / "other-hook", hook="blocks.7.hook_resid_post")
    plant_sae(saes / "no-layer", hook="encoder.layer.0")
    plant_sae(saes / "whole")
    ran = planted.evaluate(
        tmp_path / "out",
        saes,
        *("--no-sae-lens", "--model", MODEL, "--sae-bench", "core", "scr"),
        *("--data", tmp_path, *planted.settings("core", "scr")),  # without biographies
    )
    assert ran.returncode == 1
    errors = ran.stderr.strip().splitlines()
    for start, reason in {
        f"{saes}/corrupt: ": "cannot be loaded",
        f"core of {saes}/other-width: ": "should have inputs of the model's width, 64 in",
        f"scr of {saes}/other-hook: ": "whose blocks are 0 to 1",
        f"core of {saes}/no-layer: ": "whose blocks are 0 to 1",
        f"scr of {saes}/whole: ": "LabHC/bias_in_bios",
    }.items():
        assert [e for e in errors if e.startswith(start) and reason in e], (start, errors)
    assert len(errors) == 8
    report = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    by_name = {Path(sae["name"]).name: set(sae["evaluations"]) for sae in report["saes"]}
    assert by_name["whole"] == {"weights", "core"}
    assert by_name["other-width"] == {"weights"}


def test_a_failure_that_core_swallows_is_told(planted: Planted, tmp_path: Path) -> None:
    ran = planted.evaluate(
        tmp_path / "out",
        planted.folder / "sae",
        *("--no-sae-lens", "--model", MODEL, "--sae-bench", "core", *planted.settings("core")),
        *("--set", "core.context_size=100000"),
    )
    assert ran.returncode == 1
    (line,) = ran.stderr.strip().splitlines()
    assert line.startswith("core of")
    assert "context" in line


def test_the_key_is_asked_for_and_kept_nowhere(planted: Planted, tmp_path: Path) -> None:
    arguments = (
        planted.folder / "sae",
        *("--no-sae-lens", "--model", MODEL, "--sae-bench", "autointerp"),
        *("--data", planted.folder / "data", *planted.settings("autointerp")),
        *("--set", f"autointerp.dataset_name={planted.text}"),
    )
    key, nowhere = "sk-this-is-a-secret", "http://127.0.0.1:9"
    ran = planted.evaluate(
        tmp_path / "out", *arguments, OPENAI_API_KEY=key, OPENAI_BASE_URL=nowhere
    )
    assert ran.returncode == 1
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not [text for text in written if key.encode() in text]
    assert key not in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ("--sae-bench cores", "`sae-bench`"),
        ("--sae-bench core unlearning", "`sae-bench`"),
        ("--sae-bench core --set core.compute_kl=true", "core.compute_kl"),
        ("--sae-bench core --set core.context_size=0", "core.context_size"),
        ("--sae-bench core --set core.llm_dtype=int", "core.llm_dtype"),
        ("--sae-bench core --set tpp.probe_lr=1", "tpp.probe_lr"),
        ("--sae-bench scr --set scr.perform_scr=no", "scr.perform_scr"),
        ("--sae-bench scr --set scr.probe_lr=.nan", "finite"),
        ("--sae-bench scr --set scr.probe_lr=much", "scr.probe_lr"),
        ("--sae-bench autointerp", "OPENAI_API_KEY"),
        ("--set score.x=1", "score"),
        ("--set core=1", "core.context_size=64"),
        ("--set sae_lens.batch_size_prompts=0", "sae_lens.batch_size_prompts"),
        ("--set sae_lens.batch_size_prompts=1.5", "sae_lens.batch_size_prompts"),
        ("--set known_features.samples=true", "known_features.samples"),
        ("--set known_features.size=3", "known_features.size"),
        ("--data nowhere", "`data`"),
        ("--hours 0", "`hours`"),
        ("--text nothing.txt", "`text`"),
    ],
)
def test_what_does_not_exist_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, key: str
) -> None:
    sae, out = plant_sae(tmp_path / "sae", d_in=8), tmp_path / "out"
    command = ["evaluate", str(sae), "--model", MODEL, *arguments.split(), "--out", str(out)]
    with pytest.raises(SystemExit) as left:
        main(command)
    assert left.value.code == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert key in line
    assert not out.exists()
