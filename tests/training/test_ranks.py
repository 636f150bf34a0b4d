"""A release over several processes: the same weights, and one end for all of them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from sae_lens import LoggingConfig
from sae_lens.training.sae_trainer import SAETrainer
from safetensors.torch import load_file
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.training import distributed, plan, runners
from tests import forkserver
from tests.training import rank_processes
from tests.training.killing import (
    IDS,
    MINILM,
    SMALL,
    STEPS,
    after_checkpoints,
    as_options,
    checkpoints,
    half_written,
    hashes,
    limit_file_size,
)
from tests.training.rank_processes import free_port, start, told, train

TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-id=nodes"),
    *("--max-restarts=1", "--no-python"),
)


def test_any_number_of_processes_trains_the_same_weights(
    release: Path, out: Path, untouched: Path
) -> None:
    assert train(3, release, out, minutes=0) == [0, 0, 0]
    assert hashes(out) == hashes(untouched)
    assert not (out / ".training").exists()
    printed = [path.read_text() for path in sorted(rank_processes.logs(out).glob("*.out"))]
    assert printed[1:] == ["", ""]
    errors = [path.read_text() for path in sorted(rank_processes.logs(out).glob("*.err"))]
    assert "Training" in errors[0]
    assert "3 SAEs trained" in errors[0]
    assert errors[1:] == ["", ""]
    assert record(out / IDS[1])["trained_together"] == IDS


def test_stopped_with_two_it_is_continued_with_one_and_then_with_three(
    release: Path, out: Path, untouched: Path
) -> None:
    """A signal to any of them stops all at the same step, with a checkpoint of it."""
    for size in (2, 1):
        before = {0: after_checkpoints(out, 3, signal.SIGTERM)}
        assert train(size, release, out, before=before) == [143] * size
        assert "Interrupted. `--resume` continues from the last checkpoint." in told(out)
        assert not half_written(out)
        assert all((checkpoints(out)[-1] / sae_id).is_dir() for sae_id in IDS)
    assert train(3, release, out) == [0, 0, 0]
    assert hashes(out) == hashes(untouched)


def test_a_signal_to_the_last_process_stops_them_all(release: Path, out: Path) -> None:
    before = {1: (at_step, (5, signal.raise_signal, signal.SIGINT))}
    assert train(2, release, out, before=before, minutes=0) == [130, 130]
    assert [path.name for path in checkpoints(out)] == ["step-000000005"]


def at_step(step: int, action: Callable[..., object], *arguments: Any) -> None:
    """Have this process do something once, before it takes a step."""
    take = SAETrainer.step
    done = False

    def take_and_act(trainer: Any, batch: Any) -> Any:
        nonlocal done
        if trainer.n_training_steps == step - 1 and not done:
            done = True
            action(*arguments)
        return take(trainer, batch)

    SAETrainer.step = take_and_act  # type: ignore[method-assign]


@pytest.mark.parametrize("killed", [0, 2])
def test_a_process_that_is_killed_is_named_in_one_line_and_the_rest_end(
    release: Path, out: Path, untouched: Path, killed: int
) -> None:
    before = {killed: (at_step, (9, signal.raise_signal, signal.SIGKILL))}
    assert train(3, release, out, before=before) == [
        -9 if rank == killed else 1 for rank in range(3)
    ]
    lines = [line for line in told(out).splitlines() if "Another process has ended" in line]
    assert len(lines) == 2
    assert all(
        line.endswith("`--resume` continues from the last checkpoint.") for line in lines
    )
    assert not half_written(out)
    assert train(2, release, out) == [0, 0]
    assert hashes(out) == hashes(untouched)


def be_impatient() -> None:
    distributed.TIMEOUT = timedelta(seconds=15)


def hang_at_step(step: int) -> None:
    be_impatient()
    at_step(step, signal.raise_signal, signal.SIGSTOP)


def test_a_process_that_hangs_ends_the_others(release: Path, out: Path) -> None:
    before = {0: (be_impatient, ()), 1: (hang_at_step, (3,)), 2: (be_impatient, ())}
    first, hanging, last = start(3, release, out, before=before, minutes=0)
    assert [first.wait(), last.wait()] == [1, 1]
    assert hanging.poll() is None
    hanging.kill()
    hanging.wait()
    lines = [line for line in told(out).splitlines() if "or does not answer" in line]
    assert len(lines) == 2


def test_what_fails_in_one_process_ends_all_of_them(release: Path, out: Path) -> None:
    assert train(2, release, out, before={1: (at_step, (3, float, "no"))}, minutes=0) == [1, 1]
    assert "SAELens failed: ValueError: could not convert string to float: 'no'" in told(out)


def test_without_room_for_one_part_there_is_no_checkpoint_and_it_goes_on(
    release: Path, out: Path, untouched: Path
) -> None:
    assert train(2, release, out, before={1: (limit_file_size, (25_000,))}) == [0, 0]
    errors = (rank_processes.logs(out) / "rank-0.err").read_text()
    assert "No checkpoint was written at step 1. Rank 1: " in errors
    assert hashes(out) == hashes(untouched)


def change_release(path: Path, text: str) -> None:
    """Have this process read another release in place of one."""
    read = Path.read_text
    Path.read_text = lambda file, **options: text if file == path else read(file, **options)  # type: ignore[method-assign, assignment, return-value]


def have_other_versions() -> None:
    from sae_lens_c2r.training import train

    here = train.circumstances
    train.circumstances = lambda device: {**here(device), "versions": {"torch": "1.0"}}


def have_a_disk_of_ones_own(out: Path, other: Path) -> None:
    distributed.PATIENCE = 0
    exists = Path.exists
    Path.exists = lambda path: (
        exists(other / path.name) if path.is_relative_to(out) else exists(path)
    )  # type: ignore[method-assign, assignment]


def refuse_the_plan() -> None:
    plan.make_plan = Mock(side_effect=UserError("There should be no such plan."))


def refusal(size: int, release: Path, out: Path, *options: str, **before: Any) -> str:
    """The one line that all of them end with."""
    assert set(train(size, release, out, *options, **before)) <= {1, 2}
    [line] = [line for line in told(out).splitlines() if "should" in line]
    assert not any(out.rglob("*.safetensors"))
    return line


def test_what_cannot_be_trained_together_is_refused_by_name(
    release: Path, tmp_path: Path
) -> None:
    other = (change_release, (release, release.read_text().replace("k: 4", "k: 5")))
    line = refusal(2, release, tmp_path / "plan", before={1: other})
    assert line.startswith("Rank 1: All ranks should have the plan and versions of rank 0.")
    assert "Found `saes.layer_0" in line
    assert "k = 5`, and 4 there" in line
    line = refusal(2, release, tmp_path / "versions", before={1: (have_other_versions, ())})
    assert "Found `versions.torch = '1.0'`, and " in line
    out = tmp_path / "disk"
    alone = (have_a_disk_of_ones_own, (out, tmp_path / "own"))
    line = refusal(2, release, out, before={1: alone})
    assert (
        f"`--out` should be a folder that all ranks share. Rank 1 does not find in {out}"
        in line
    )
    two = (f"--only={IDS[0]}", f"--only={IDS[1]}")
    line = refusal(3, release, tmp_path / "no multiple", *two)
    assert "at most as many processes as SAEs, 2, or a multiple of that number." in line
    # `torchrun` ends all when one has ended: the one that refuses waits until it is said.
    line = refusal(2, release, tmp_path / "one", before={1: (refuse_the_plan, ())})
    assert line == "Rank 1: There should be no such plan."


def test_a_process_without_an_sae_of_its_own_takes_part(
    release: Path, out: Path, untouched: Path
) -> None:
    """Where most SAEs are there already."""
    assert train(1, release, out, "--only", IDS[0], minutes=0) == [0]
    assert train(3, release, out, minutes=0) == [0, 0, 0]
    assert hashes(out) == hashes(untouched)


@pytest.mark.exhaustive
def test_torchrun_on_two_nodes_goes_on_after_a_kill_and_ends_with_the_same_weights(
    out: Path, of_model: Path
) -> None:
    """SAEs of a language model, as on machines of a cluster; only one of them sees the kill."""
    where = f"--nnodes=2 --nproc-per-node=1 --rdzv-endpoint=127.0.0.1:{free_port()}"
    worker = [forkserver.python(), "-m", "tests.training.rank_processes", str(out)]
    arguments = [MINILM, "--out", str(out), "--checkpoint-minutes=1e-9", *as_options(SMALL)]
    nodes = [
        subprocess.Popen(
            [*TORCHRUN, *where.split(), *worker, *arguments],
            cwd=forkserver.ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    printed = "".join(node.communicate(timeout=forkserver.LIMIT)[0] for node in nodes)
    assert "exitcode: -9" in printed
    assert "from step 2 of 4." in printed
    assert "exitcode: -6" not in printed
    assert hashes(out) == hashes(of_model)


def test_each_process_logs_a_run_of_its_own_in_one_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logger = LoggingConfig(wandb_id="mine", run_name="gemma")
    config = SimpleNamespace(logger=logger, to_dict=dict)
    logged = []

    def note(*, name: str, id: str, **_: object) -> None:
        logged.append((name, id, os.environ.get("WANDB_RUN_GROUP")))

    monkeypatch.setattr(runners.wandb, "init", note)
    monkeypatch.setattr(runners.wandb, "finish", lambda _: None)
    monkeypatch.setenv("WANDB_RUN_GROUP", "")
    for rank, n_ranks in ((0, 1), (0, 2), (1, 2)):
        monkeypatch.setattr(runners, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(runners, "world_size", lambda n_ranks=n_ranks: n_ranks)
        monkeypatch.delenv("WANDB_RUN_GROUP", raising=False)
        with runners.wandb_run(config, {}, group="release"):
            pass
    assert logged == [
        ("gemma", "mine", None),
        ("gemma-rank-0", "mine-rank-0", "mine"),
        ("gemma-rank-1", "mine-rank-1", "mine"),
    ]


# More processes than SAEs: a group for each, which shares its batches.
ONE, TWO = ([f"--only={sae_id}" for sae_id in IDS[:n]] for n in (1, 2))


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "sae_weights.safetensors")


def assert_close(folder: Path, other: Path) -> None:
    torch.testing.assert_close(weights(folder), weights(other), rtol=1e-4, atol=1e-5)


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "training.json").read_text())
    return found


def test_a_batch_split_over_processes_trains_the_same_sae_up_to_rounding(
    release: Path, tmp_path: Path
) -> None:
    out, alone = tmp_path / "saes", tmp_path / "alone"
    assert train(1, release, alone, *ONE, minutes=0) == [0]
    assert train(2, release, out, *ONE) == [0, 0]
    assert_close(out / IDS[0], alone / IDS[0])
    assert any(  # or it was not split
        not torch.equal(weight, weights(alone / IDS[0])[name])
        for name, weight in weights(out / IDS[0]).items()
    )
    assert "Each batch is split over 2 processes, 25 tokens each" in told(out)
    of_two, of_one = record(out / IDS[0]), record(alone / IDS[0])
    assert (of_two["processes_per_batch"], of_one["processes_per_batch"]) == (2, 1)
    assert of_two["samples"] == of_one["samples"] == 50 * STEPS


def test_stopped_with_four_it_is_continued_with_one_and_then_with_two(
    release: Path, untouched: Path, out: Path
) -> None:
    for size in (4, 1):
        before = {0: after_checkpoints(out, 3, signal.SIGTERM)}
        assert train(size, release, out, *TWO, before=before) == [143] * size
        assert all((checkpoints(out)[-1] / sae_id).is_dir() for sae_id in IDS[:2])
    assert train(2, release, out, *TWO) == [0, 0]
    for sae_id in IDS[:2]:
        assert_close(out / sae_id, untouched / sae_id)
        assert record(out / sae_id)["processes_per_batch"] == 2


def test_a_process_of_a_group_that_is_killed_or_fails_ends_the_others(
    release: Path, tmp_path: Path
) -> None:
    # Its error is of the type of those of exchanges.
    fail_in_torch = (torch.add, torch.zeros(2), torch.zeros(3))
    for action, status, ending in [
        ((signal.raise_signal, signal.SIGKILL), -9, "Connection "),
        (fail_in_torch, 1, "SAELens failed: RuntimeError: The size of"),
    ]:
        out = tmp_path / str(status)
        before = {1: (at_step, (9, *action))}
        assert train(2, release, out, *ONE, before=before) == [1, status]
        assert ending in told(out)
        assert train(2, release, out, *ONE) == [0, 0]


def test_of_a_language_model_too_a_batch_may_be_split(out: Path, of_model: Path) -> None:
    sae_id = "layer_3/width_512/ort_c2r_k32"
    options = [*as_options(SMALL), "--only", sae_id]
    assert train(2, MINILM, out, *options, minutes=0) == [0, 0]
    assert_close(out / sae_id, of_model / sae_id)
    assert record(out / sae_id)["processes_per_batch"] == 2
