"""Runs: what is kept of them, when their processes end, and that each is done once."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from signal import SIGKILL
from threading import Event
from typing import NoReturn
from unittest.mock import patch

import numpy as np
import pytest
import torch

from benchmarks.parallel import execute_all, read
from benchmarks.synth_sae_bench import world
from benchmarks.synth_sae_bench.controls import ActivationsOnly, DirectionsOnly
from benchmarks.synth_sae_bench.methods import METHODS, Run
from benchmarks.synth_sae_bench.runs import execute, make_sae
from benchmarks.synth_sae_bench.world import Size, World
from sae_lens_c2r.penalties.cosines import pair_cosines
from sae_lens_c2r.releases.files import find_release, read_release
from tests.architectures.training import make_config

PATIENCE = 300  # seconds


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """Keep what is set for the runs' processes from the tests that come after."""
    with patch.dict(os.environ):
        yield


def double(run: int) -> dict[str, int]:
    return {"run": run, "doubled": 2 * run}


def train_or_fail(of: tuple[str, Path]) -> NoReturn:
    """Opening the pipe waits for the other end: the one fails while the other trains."""
    what, folder = of
    if what == "train":
        with (folder / "pipe").open("w"):
            train(folder)
    with (folder / "pipe").open():
        raise ZeroDivisionError


def train(folder: Path) -> NoReturn:
    """A run that goes on until its process is ended, or for so long that nobody did."""
    print("training", flush=True)
    Event().wait(PATIENCE)
    (folder / "went on").touch()
    os._exit(1)


def test_each_run_is_a_line_and_a_line_that_was_cut_short_is_taken_out(tmp_path: Path) -> None:
    results = tmp_path / "folder" / "runs.jsonl"
    execute_all([1, 2, 3], double, results, processes=2)
    assert sorted(each["doubled"] for each in read(results)) == [2, 4, 6]
    with results.open("a") as file:
        file.write('{"run": 4, "dou')
    assert sorted(each["run"] for each in read(results)) == [1, 2, 3]
    assert [json.loads(line) for line in results.read_text().splitlines()] == read(results)


def test_a_failure_ends_the_runs_beside_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    runs = [("train", tmp_path), ("fail", tmp_path)]
    with pytest.raises(ZeroDivisionError):
        execute_all(runs, train_or_fail, tmp_path / "runs.jsonl", processes=2)
    assert not (tmp_path / "went on").exists()


def test_processes_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from pathlib import Path\n"
        "from benchmarks.parallel import execute_all\n"
        "from tests.benchmarks.test_runs import train\n"
        "if __name__ == '__main__':\n"
        f"    folder = Path({str(tmp_path)!r})\n"
        "    execute_all([folder], train, folder / 'runs.jsonl', processes=1)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    parent = subprocess.Popen(
        [sys.executable, program], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    assert any("training" in line for line in parent.stdout)
    parent.send_signal(SIGKILL)
    parent.communicate()  # until nobody, the worker included, can write there any more
    assert not (tmp_path / "went on").exists()


TINY = Size("tiny", (2,), 2048, 4096, evaluation=4096)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world of few features, made as the others are."""
    release = read_release(find_release("synth-sae-bench-2k"))
    config = {**release.synthetic_model.config, "num_features": 64, "hidden_dim": 16}
    config["hierarchy"] = {**config["hierarchy"], "total_root_nodes": 2, "max_depth": 1}
    config["orthogonalization"] = {"num_steps": 2, "lr": 3e-4}
    small = release.model_copy(
        update={
            "synthetic_model": release.synthetic_model.model_copy(update={"config": config}),
            "sae": {"d_in": 16, "d_sae": 32},
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "find_release", str)
        patch.setattr(world, "read_release", lambda _: small)
        patch.setattr(world, "CHUNK", 4096)
        patch.setattr(world, "execute_all", in_this_process)
        found = World(TINY, tmp_path_factory.mktemp("samples"))
        found.generate(processes=1)
        yield found


def in_this_process(runs, execute, _path: Path, **_: object) -> None:
    for run in runs:
        execute(run)


def test_samples_are_the_same_ones_in_another_order_for_every_seed(tiny: World) -> None:
    pool = np.load(tiny.pool)
    first, again, other = (next(tiny.batches(seed, 4096)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert np.array_equal(np.sort(first.numpy(), axis=0), np.sort(pool, axis=0))
    assert np.isfinite(pool).all()
    assert (pool.std(axis=0) > 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_makes_an_sae_of_its_own_strength(method: str, tiny: World) -> None:
    strength = METHODS[method].strengths[-1]
    sae = make_sae(Run("tiny", method, strength, 2, 0, 2048), tiny, "cpu")
    if METHODS[method].coefficient:
        assert getattr(sae.cfg, METHODS[method].coefficient) == strength
    for field, value in METHODS[method].options:
        assert getattr(sae.cfg, field) == value


def test_a_run_is_trained_once_and_measured(tiny: World) -> None:
    run = Run("tiny", "C2R", 5, 2, 0, 2048)
    torch.set_num_threads(1)
    open_world = partial(World, TINY, tiny.folder.parent)
    found = execute((run, open_world, "cpu"))
    saved = next((tiny.folder / "saes").rglob("sae_weights.safetensors"))
    before = saved.stat().st_mtime_ns
    again = execute((run, open_world, "cpu"))
    assert json.dumps(again) == json.dumps(found)  # of few samples absorption may be NaN
    assert saved.stat().st_mtime_ns == before
    assert found["method"] == "C2R"
    assert found["explained_variance"] < 1


@pytest.mark.parametrize(
    ("control", "moves_decoder", "moves_acts"),
    [(DirectionsOnly, True, False), (ActivationsOnly, False, True)],
)
def test_a_control_has_one_of_the_two_gradients(control, moves_decoder, moves_acts) -> None:
    torch.manual_seed(0)
    sae = control(make_config("batchtopk_c2r"))
    acts = torch.rand(8, sae.cfg.d_sae, requires_grad=True)
    neighbors = sae._nearest_neighbors(None, seed=0, step=0)
    penalty = sae._measure_c2r(acts, neighbors, pair_cosines(sae.W_dec, neighbors), 0)
    grads = torch.autograd.grad(penalty, [sae.W_dec, acts], allow_unused=True)
    assert [grad is not None and bool((grad != 0).any()) for grad in grads] == [
        moves_decoder,
        moves_acts,
    ]
