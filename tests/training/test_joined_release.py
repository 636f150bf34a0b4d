"""A release over more processes than SAEs: a group for each, which shares its batches."""

import json
import signal
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.training.killing import (
    IDS,
    MINILM,
    SMALL,
    STEPS,
    after_checkpoints,
    as_options,
    checkpoints,
)
from tests.training.rank_processes import told, train
from tests.training.test_ranks import at_step

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
