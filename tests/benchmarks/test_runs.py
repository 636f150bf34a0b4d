"""Runs: each is done once, as its row says."""

import json
import re
from pathlib import Path
from unittest.mock import Mock, create_autospec

import numpy as np
import pytest
import torch
from sae_lens.synthetic import SyntheticModel

from benchmarks import experiment, worlds
from benchmarks.__main__ import main
from benchmarks.experiment import METHODS, ROWS_ONLY, Run, Size, execute, make_sae
from benchmarks.rows import read
from benchmarks.worlds import synth_sae_bench
from benchmarks.worlds.finetuning import BEFORE, Finetuning
from benchmarks.worlds.finetuning import sizes as finetuning_sizes


def in_this_process(tasks, execute, path: Path, **_: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(execute(task)) + "\n" for task in tasks)


def test_the_world_of_the_readme_is_trained_once_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = Path("benchmarks/README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len(code.splitlines()) <= 60
    (tmp_path / "toy.py").write_text(code)
    monkeypatch.setattr(worlds, "__path__", [*worlds.__path__, str(tmp_path)])
    monkeypatch.setattr(experiment, "execute_all", in_this_process)
    out, data = tmp_path / "out", tmp_path / "data"
    command = ["toy", "--quick", "--jobs", "1", "--out", str(out), "--data", str(data)]
    main([*command, "--only", "C2R"])
    [weights, _] = data.rglob("sae_weights.safetensors")
    before = weights.stat().st_mtime_ns
    main(command)
    rows = read(out / "runs.jsonl")
    assert [(row["method"], row["seed"], row["world_seed"]) for row in rows] == [
        *(("C2R", 0, 0), ("C2R", 1, 1), ("BatchTopK", 0, 0), ("BatchTopK", 1, 1))
    ]
    assert weights.stat().st_mtime_ns == before
    assert "| C2R | BatchTopK | at 5 | 2 |" in (out / "quick.md").read_text()
    assert [path.name for path in out.glob("*.png")] == ["quick.png"]
    with pytest.raises(SystemExit):
        main([*command, "--draw-only", "--out", str(tmp_path / "nothing")])


def test_every_seed_has_a_world_of_its_own_and_samples_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = synth_sae_bench.SIZES["quick"][0].world
    size = Size(size, [2], 1024, 128, {"C2R": [5]}, pool=4096, evaluation=4096)
    monkeypatch.setitem(synth_sae_bench.SIZES, "quick", [size])
    model = synth_sae_bench.DATA["model"]
    # An eighth of it is drawn within a second.
    small = {
        "num_features": 8 * 64,
        "hidden_dim": 8 * 16,
        "orthogonalization": {"num_steps": 2},
    }
    small["hierarchy"] = {**model["hierarchy"], "total_root_nodes": 8 * 2, "max_depth": 1}
    data = {**synth_sae_bench.DATA, "model": {**model, **small}, "d_sae": 8 * 32}
    monkeypatch.setattr(synth_sae_bench, "DATA", data)
    runs = size.runs()
    first, second = (synth_sae_bench.open_world(run, tmp_path, "cpu") for run in runs[:2])
    for world in (first, second):
        world.prepare()
    models = (SyntheticModel.load_from_disk(each.folder / "model") for each in (first, second))
    one, other = (model.feature_dict.feature_vectors for model in models)
    assert not torch.allclose(one, other)
    assert not np.array_equal(np.load(first.pools[0]), np.load(second.pools[0]))
    again = synth_sae_bench.open_world(runs[0], tmp_path / "again", "cpu")
    again.prepare()
    assert np.array_equal(np.load(first.pools[0]), np.load(again.pools[0]))
    batches = [next(first.batches(seed, 4096)) for seed in (0, 0, 1)]
    assert torch.equal(batches[0], batches[1])
    assert not torch.equal(batches[0], batches[2])
    assert np.array_equal(np.sort(batches[2], axis=0), np.sort(np.load(first.pools[0]), axis=0))
    row = execute((runs[1], tmp_path, "cpu"))
    assert (row["seed"], row["world_seed"]) == (1, 1)
    assert row["explained_variance"] < 1


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ROWS_ONLY])
def test_every_method_makes_an_sae_of_its_own_strength(method: str) -> None:
    about, run = METHODS[method], Run("", method, 3.5, 2, 0, 0, 1024, 128, 1e-3, 0.2)
    shape = {"d_in": 16, "d_sae": 32, "device": "cpu", "sae_options": {}}
    sae = make_sae(Mock(run=run, method=about, **shape))
    expected = {**about.options, **({about.coefficient: 3.5} if about.coefficient else {})}
    assert {name: getattr(sae.cfg, name) for name in expected} == expected


def test_fine_tuning_starts_from_the_sae_before_on_samples_that_it_has_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.worlds.four_worlds.EVALUATION_SAMPLES", 4096)
    batches = create_autospec(Finetuning.batches, side_effect=Finetuning.batches)
    monkeypatch.setattr(Finetuning, "batches", batches)
    sizes = {name: size for size in finetuning_sizes(20, 1) for name in size.methods}
    before, finetuned = sizes[BEFORE], sizes["10 % with C2R"]
    row = execute((finetuned.runs()[0], tmp_path, "cpu"))
    assert 0.5 < row["cosine_median"] < 1
    assert row["samples"] == 2 * 256
    assert execute((before.runs()[0], tmp_path, "cpu"))["cosine_median"] == 1
    seeds = [called.args[1] for called in batches.call_args_list]
    assert seeds == [0, 1000, 54321, 54321]  # the one before is there already
