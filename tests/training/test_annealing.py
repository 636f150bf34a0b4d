"""k that falls: what it is at each step, and that a run that is resumed has the same."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sae_lens import SAETrainer, TrainingSAE
from sae_lens.saes.batchtopk_sae import BatchTopKTrainingSAEConfig
from sae_lens.saes.sae import TrainStepInput
from sae_lens.saes.topk_sae import TopKTrainingSAEConfig
from safetensors.torch import load_file

from sae_lens_c2r.cli import main
from sae_lens_c2r.releases.files import read_release
from sae_lens_c2r.training.annealing import k_at
from sae_lens_c2r.training.plan import make_plan
from sae_lens_c2r.training.sameness import settings_of
from tests.releases.test_files import write

ARCHITECTURES = ["topk", "abstopk_c2r", "batchtopk_c2r", "ort", "matryoshka_batchtopk_c2r"]
STEPS = 6


@given(
    d_in=st.integers(1, 50),
    d_sae=st.integers(1, 50),
    k=st.floats(0.25, 50),
    steps=st.integers(0, 30),
)
def test_k_falls_from_the_size_of_the_inputs_to_what_it_is(
    d_in: int, d_sae: int, k: float, steps: int
) -> None:
    k = min(k, d_sae)
    config = BatchTopKTrainingSAEConfig(d_in=d_in, d_sae=d_sae, k=k)
    ks = [k_at(step, config, steps) for step in range(steps + 3)]
    assert ks[steps:] == [k] * 3
    assert all(before >= after for before, after in pairwise(ks))
    assert max(ks) <= d_sae
    if steps and min(d_in, d_sae) >= k:
        assert ks[0] == min(d_in, d_sae)


def test_topk_has_a_whole_number_at_every_step() -> None:
    config = TopKTrainingSAEConfig(d_in=10, d_sae=64, k=3)
    ks = [k_at(step, config, 4) for step in range(6)]
    assert ks == [10, 8, 6, 5, 3, 3]
    assert all(isinstance(k, int) for k in ks)


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main(["train", *map(str, arguments), "--device", "cpu"])
    return int(left.value.code or 0)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        sae={
            **{"d_in": 8, "d_sae": 32, "k": 2, "k_anneal_steps": STEPS},
            **{"matryoshka_widths": [16, 32], "c2r_interval": 2},
            **{"c2r_chunk_size": 20, "c2r_warm_up_steps": 7, "ort_interval": 2},
        },
        grids=[{"id": "{architecture}", "axes": {"architecture": ARCHITECTURES}}],
    )


@pytest.mark.parametrize("stop_at", [3, STEPS])
def test_a_resumed_run_has_the_same_k_and_ends_with_the_same_weights(
    release: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop_at: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ks: dict[str, list[float]] = {name: [] for name in ARCHITECTURES}
    encode = TrainingSAE.training_forward_pass
    step = SAETrainer.step

    def note_k(sae: TrainingSAE[Any], step_input: TrainStepInput) -> Any:
        ks[sae.cfg.architecture()].append(sae.activation_fn.k)  # type: ignore[arg-type]
        return encode(sae, step_input)

    def note_k_between_steps(trainer: SAETrainer[Any, Any], batch: torch.Tensor) -> Any:
        output = step(trainer, batch)
        assert trainer.sae.activation_fn.k == 2
        return output

    def stop(trainer: SAETrainer[Any, Any]) -> dict[str, Any]:
        if trainer.n_training_steps == stop_at:
            raise KeyboardInterrupt
        return {}

    monkeypatch.setattr(TrainingSAE, "training_forward_pass", note_k)
    monkeypatch.setattr(SAETrainer, "step", note_k_between_steps)
    assert run(release, "--out", tmp_path / "untouched") == 0
    expected = {name: list(each) for name, each in ks.items()}
    for each in ks.values():
        each.clear()
    out = tmp_path / "saes"
    with monkeypatch.context() as stopped:
        stopped.setattr(SAETrainer, "full_sparsity_window_log", stop)
        assert run(release, "--out", out, "--checkpoint-minutes", "1e-9") == 130
    assert run(release, "--out", out, "--resume", "--set", "sae.k_anneal_steps=5") == 1
    assert "k_anneal_steps = 5`, and 6 there." in capsys.readouterr().err
    assert run(release, "--out", out, "--resume") == 0
    for name in ARCHITECTURES:
        assert expected[name] == [8, 7, 6, 5, 4, 3, 2, 2, 2, 2]
        assert ks[name] == expected[name]
        weights = [
            load_file(folder / name / "sae_weights.safetensors")
            for folder in (tmp_path / "untouched", out)
        ]
        assert all(torch.equal(weights[1][key], tensor) for key, tensor in weights[0].items())
        record = json.loads((out / name / "training.json").read_text())
        assert record["settings"]["saes"][name]["k_anneal_steps"] == STEPS
        assert record["settings"]["saes"][name]["k"] == 2


def test_it_is_one_of_the_settings_that_a_run_has_to_share(release: Path) -> None:
    plain = make_plan(read_release(release, changes={"sae.k_anneal_steps": 0}), device="cpu")
    assert not plain.k_anneal_steps
    assert "k_anneal_steps" not in settings_of(plain, ["topk"])["saes"]["topk"]
    annealed = make_plan(read_release(release), device="cpu")
    assert settings_of(annealed, ["topk"])["saes"]["topk"]["k_anneal_steps"] == STEPS
