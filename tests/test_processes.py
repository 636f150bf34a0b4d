"""Batches split over processes: penalties and their gradients are the joined batch's."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from sae_lens_c2r import c2r_penalty, nearest_neighbors
from sae_lens_c2r.penalties import orthogonality_penalty, step_generator, typical_norm
from tests.architectures.training import make_sae, step_input
from tests.process_groups import in_processes
from tests.properties import gradients
from tests.strategies import Case

D_SAE, D_IN = 20, 6
SIZES = [5, 3, 4]  # samples of each process: none need be as many
OPTIONS: dict[str, dict[str, Any]] = {
    "exact": {"chunk_size": None},
    "chunks": {"chunk_size": 6},
    "more processes than chunks": {"chunk_size": 15},
    "exponent": {"chunk_size": 6, "exponent": 1.7},
    "all pairs": {"chunk_size": 6, "pairs": "all"},
    "no gate": {"chunk_size": 6, "gate": "none"},
    "sparse": {"chunk_size": 6, "sparse": True},
    "not finite": {"chunk_size": 6, "first_value": float("nan")},
}


def batch() -> tuple[list[Tensor], Tensor]:
    """The parts of a batch, and a decoder: with silent latents, here and everywhere."""
    generator = torch.Generator().manual_seed(0)
    acts = torch.rand(sum(SIZES), D_SAE, generator=generator, dtype=torch.float64)
    acts[:, 3] = 0
    acts[: SIZES[0], 7] = 0
    W_dec = torch.randn(D_SAE, D_IN, generator=generator, dtype=torch.float64)
    return list(acts.split(SIZES)), W_dec


def penalty_and_gradients(
    acts: Tensor,
    W_dec: Tensor,
    *,
    sparse: bool = False,
    first_value: float | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    def penalty(acts: Tensor, W_dec: Tensor) -> Tensor:
        given = acts.to_sparse() if sparse else acts
        return c2r_penalty(given, W_dec, generator=step_generator(0, 0), **options)

    acts = acts.clone()
    if first_value is not None:
        acts[0, 5] = first_value
    return gradients(penalty, Case(acts, W_dec))


def all_penalties(rank: int) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    parts, W_dec = batch()
    results = {}
    for name, options in OPTIONS.items():
        own = {**options, "process_group": dist.group.WORLD}
        if rank > 0:
            own.pop("first_value", None)
        results[name] = penalty_and_gradients(parts[rank], W_dec, **own)
    return results


def test_the_penalty_and_its_gradients_are_those_of_the_joined_batch(tmp_path: Path) -> None:
    n = len(SIZES)
    found = in_processes(n, all_penalties, folder=tmp_path)
    parts, W_dec = batch()
    joined = torch.cat(parts)
    for name, options in OPTIONS.items():
        value, in_acts, in_W_dec = penalty_and_gradients(joined, W_dec, **options)
        for each in found:
            torch.testing.assert_close(each[name][0], value, rtol=1e-12, atol=0, equal_nan=True)
        if not value.isfinite():
            assert all(each[name][1].isnan().any() for each in found)
            continue
        # Averaged over the processes, as those of the weights will be.
        in_parts = torch.cat([each[name][1] for each in found]) / n
        torch.testing.assert_close(in_parts, in_acts, rtol=1e-11, atol=1e-14, equal_nan=True)
        averaged = sum(each[name][2] for each in found) / n
        torch.testing.assert_close(averaged, in_W_dec, rtol=1e-11, atol=1e-14, equal_nan=True)


def searches(rank: int) -> tuple[Tensor, ...]:
    group = dist.group.WORLD
    parts, W_dec = batch()
    search = partial(nearest_neighbors, W_dec, chunk_size=4, process_group=group)
    seeded, other_seeds = (search(generator=step_generator(seed, 0)) for seed in (0, rank))
    unseeded = search()
    orthogonality = orthogonality_penalty(W_dec, process_group=group)
    norm = typical_norm(parts[rank], process_group=group)
    return seeded, other_seeds, unseeded, orthogonality, norm


def test_all_processes_get_the_search_that_they_share_and_one_norm_of_the_inputs(
    tmp_path: Path,
) -> None:
    found = in_processes(len(SIZES), searches, folder=tmp_path)
    parts, W_dec = batch()
    alone = nearest_neighbors(W_dec, chunk_size=4, generator=step_generator(0, 0))
    for seeded, other_seeds, unseeded, orthogonality, norm in found:
        assert torch.equal(seeded, alone)
        assert torch.equal(other_seeds, alone), "not the chunks of the first process"
        assert torch.equal(unseeded, found[0][2])
        assert orthogonality == orthogonality_penalty(W_dec)
        assert norm == typical_norm(torch.cat(parts))


def first_log(rank: int) -> list[bool]:
    """Whether a penalty is shown before it is due and after, where one process alone logs."""
    sae = make_sae("ort_c2r", c2r_interval=2)
    sae.process_group = dist.group.WORLD
    outputs = [
        sae.training_forward_pass(step_input(sae, step, logging=rank == 0)) for step in (1, 2)
    ]
    return ["c2r_penalty" in output.metrics for output in outputs]


def test_what_logs_alone_measures_nothing_that_needs_others(tmp_path: Path) -> None:
    assert in_processes(2, first_log, folder=tmp_path) == [[False, True]] * 2


def be_refused_outside_a_group(rank: int) -> None:
    group = dist.new_group([0])
    says = "Parameter `process_group` should be a process group that this process is in"
    with pytest.raises(ValueError, match=says) if rank == 1 else nullcontext():
        c2r_penalty(torch.rand(3, D_SAE), torch.randn(D_SAE, D_IN), process_group=group)


def test_a_group_of_others_is_refused(tmp_path: Path) -> None:
    in_processes(2, be_refused_outside_a_group, folder=tmp_path)
