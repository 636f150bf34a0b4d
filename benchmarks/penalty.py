"""The penalty against Eq. (16) in plain autograd: `python -m benchmarks.penalty`.

`training` compares decoder rows in bfloat16 where that is fast, as training does; `direct` is
a call of `c2r_penalty`, which is exact. A GPU may use TensorFloat-32 besides. Memory is what
is taken beyond the inputs and, in the backward pass, beyond the gradients that all return.
"""

import math
from argparse import Namespace
from collections.abc import Callable

import torch
from rich.progress import track
from torch import Tensor

from benchmarks.measure import TIMINGS, main, peak_bytes, timer
from benchmarks.rows import Row
from sae_lens_c2r import c2r_penalty, nearest_neighbors
from sae_lens_c2r.penalties import step_generator

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


def compare(size: str, d_sae: int, chunk_size: int | None, device: str) -> Row:
    """Measure the penalties on the same inputs."""
    torch.manual_seed(0)
    d_in, batch_size = DATA["d_in"][size], DATA["batch_size"][size]
    acts = torch.randn(batch_size, d_sae, device=device).relu().requires_grad_()
    W_dec = torch.randn(d_sae, d_in, device=device).requires_grad_()
    order = torch.randperm(d_sae, generator=step_generator(0, 0)).to(device)
    chunks = order.split(min(chunk_size or d_sae, d_sae))

    def ours(*, reduced_precision: bool) -> Tensor:
        found = nearest_neighbors(
            W_dec,
            chunk_size=chunk_size,
            generator=step_generator(0, 0),
            reduced_precision=reduced_precision,
        )
        return c2r_penalty(acts, W_dec, neighbors=found)

    penalties = {
        "naive": lambda: naive_penalty(acts, W_dec, chunks),
        "direct": lambda: ours(reduced_precision=False),
        "training": lambda: ours(reduced_precision=True),
    }
    found = {name: measures(penalty, acts, W_dec) for name, penalty in penalties.items()}
    values, ms = ([each[key] for each in found.values()] for key in ("value", "ms"))
    assert math.isclose(min(values), max(values), rel_tol=0.01), "not the same penalty"
    faster = {"direct": ms[0] / ms[1], "training": ms[0] / ms[2]}
    chunk = "all" if chunk_size is None else f"{chunk_size:,}"
    about = {"d_sae": d_sae, "d_in": d_in, "batch_size": batch_size, "chunk": chunk}
    return {**about, **found, "naive_over": faster}


def measure(options: Namespace) -> list[Row]:
    """Return the rows of all sizes."""
    if options.device == "cuda":
        torch.set_float32_matmul_precision("high")
    size, device = options.size, options.device
    cases = track(DATA["cases"][size])
    return [compare(size, d_sae, chunk_size, device) for d_sae, chunk_size in cases]


if __name__ == "__main__":
    main("penalty", __doc__, measure)
