"""The penalty against Eq. (16) in plain autograd: `python -m benchmarks.penalty`.

`training` may compare decoder rows in bfloat16, as training does; `direct` is `c2r_penalty`,
which is exact. A GPU may use TensorFloat-32 besides. Memory is what is taken beyond the inputs
and the gradients. `--device meta` counts the calls of `training` on a GPU, and their bytes.
"""

import math
from argparse import Namespace
from collections.abc import Callable
from unittest.mock import patch

import torch
from rich.progress import track
from torch import Tensor

from benchmarks.measure import TIMINGS, Calls, main, peak_bytes, timer
from benchmarks.rows import Row
from sae_lens_c2r import c2r_penalty
from sae_lens_c2r.penalties import step_generator
from sae_lens_c2r.penalties.c2r import evaluate
from sae_lens_c2r.penalties.cosines import row_lengths
from sae_lens_c2r.penalties.neighbors import search

DATA = TIMINGS["penalty"]


def naive_penalty(feature_acts: Tensor, W_dec: Tensor, chunks: tuple[Tensor, ...]) -> Tensor:
    """Eq. (16) in chunks, with nothing but its definition in mind."""
    unit = W_dec / W_dec.norm(dim=1, keepdim=True)
    norms = feature_acts.norm(dim=0)
    total = norms.new_zeros(())
    for chunk in chunks:
        cosines = torch.relu(unit[chunk] @ unit[chunk].T)
        itself = torch.eye(len(chunk), dtype=torch.bool, device=W_dec.device)
        rho, neighbors = cosines.masked_fill(itself, -1.0).max(dim=1)
        total = total + (rho.square() * (norms[chunk] + norms[chunk[neighbors]])).sum()
    return total / len(W_dec)


def in_training(acts: Tensor, W_dec: Tensor, chunk_size: int | None) -> Tensor:
    """Evaluate the penalty as a training step does, which may compare cosines in bfloat16."""
    draw = chunk_size, step_generator(0, 0), None
    _, inverse = row_lengths(W_dec.detach())
    neighbors = search(W_dec, inverse, draw, reduced_precision=True)
    penalty, _ = evaluate(acts, W_dec, inverse, None, 1.0, "nearest", "relu", neighbors, draw)
    return penalty


def measures(penalty: Callable[[], Tensor], acts: Tensor, W_dec: Tensor) -> dict[str, float]:
    """Measure a penalty's value, times and memory."""
    device, inputs = acts.device.type, (acts, W_dec)
    kept: list[Tensor] = []
    at_forward = peak_bytes(lambda: kept.append(penalty()), device)
    at_both = peak_bytes(lambda: torch.autograd.grad(penalty(), inputs), device)
    both = (
        timer(penalty),
        timer(lambda: torch.autograd.grad(kept[0], inputs, retain_graph=True)),
    )
    forward, backward = (1e3 * each.blocked_autorange(min_run_time=1).median for each in both)
    return {
        "value": kept[0].item(),
        "forward_ms": forward,
        "backward_ms": backward,
        "ms": forward + backward,
        "extra_MiB": max(at_forward, at_both - sum(each.nbytes for each in inputs)) / 2**20,
    }


def inputs(size: str, d_sae: int, device: str) -> tuple[Tensor, Tensor]:
    """Return activations and a decoder."""
    torch.manual_seed(0)
    d_in, batch_size = DATA["d_in"][size], DATA["batch_size"][size]
    acts = torch.randn(batch_size, d_sae, device=device).relu().requires_grad_()
    return acts, torch.randn(d_sae, d_in, device=device).requires_grad_()


def compare(acts: Tensor, W_dec: Tensor, chunk_size: int | None) -> Row:
    """Measure the penalties on the same inputs."""
    d_sae = len(W_dec)
    order = torch.randperm(d_sae, generator=step_generator(0, 0)).to(W_dec.device)
    chunks = order.split(min(chunk_size or d_sae, d_sae))

    penalties = {
        "naive": lambda: naive_penalty(acts, W_dec, chunks),
        "direct": lambda: c2r_penalty(
            acts, W_dec, chunk_size=chunk_size, generator=step_generator(0, 0)
        ),
        "training": lambda: in_training(acts, W_dec, chunk_size),
    }
    found = {name: measures(penalty, acts, W_dec) for name, penalty in penalties.items()}
    values, ms = ([each[key] for each in found.values()] for key in ("value", "ms"))
    assert math.isclose(min(values), max(values), rel_tol=0.01), "not the same penalty"
    return {**found, "naive_over": {"direct": ms[0] / ms[1], "training": ms[0] / ms[2]}}


@patch("sae_lens_c2r.penalties.neighbors.has_fast_bfloat16", lambda _: True)  # as a GPU has
def count(acts: Tensor, W_dec: Tensor, chunk_size: int | None) -> Row:
    """Count what a penalty in training asks of an accelerator, for inputs on `meta`."""
    with Calls() as forward:
        penalty = in_training(acts, W_dec, chunk_size)
    with Calls() as backward:
        torch.autograd.grad(penalty, (acts, W_dec))
    return {
        **{"forward_calls": forward.number, "forward_gb": forward.bytes / 1e9},
        **{"backward_calls": backward.number, "backward_gb": backward.bytes / 1e9},
        "waits": [*forward.waits, *backward.waits],
    }


def measure(options: Namespace) -> list[Row]:
    """Return the rows of all sizes."""
    if options.device == "cuda":
        torch.set_float32_matmul_precision("high")
    size, rows = options.size, list[Row]()
    for d_sae, chunk_size in track(DATA["cases"][size]):
        acts, W_dec = inputs(size, d_sae, options.device)
        about = {"d_sae": d_sae, "d_in": W_dec.shape[1], "batch_size": len(acts)}
        about["chunk"] = "all" if chunk_size is None else f"{chunk_size:,}"
        found = (count if W_dec.is_meta else compare)(acts, W_dec, chunk_size)
        rows.append({**about, **found})
    return rows


if __name__ == "__main__":
    main("penalty", __doc__, measure, devices=["cpu", "cuda", "meta"])
