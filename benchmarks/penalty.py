"""The penalty against two others: `python -m benchmarks.penalty [--device cuda]`.

All are evaluated forward and backward on the same activations, decoder and chunks, over
widths and chunk sizes. The naive one is Eq. (16) of the paper in plain autograd. The plain
one is what one writes next: it searches without a gradient and gathers the pairs.

On a GPU both may use TensorFloat-32, and ours bfloat16 for its search.

Memory is what is taken beyond the inputs and, in the backward pass, beyond the two gradients,
which any implementation has to return.
"""

import math
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor

from benchmarks.measure import matrix_product_peak, peak_bytes, seconds, write_results
from sae_lens_c2r import c2r_penalty, nearest_neighbors
from sae_lens_c2r.penalties import step_generator
from sae_lens_c2r.penalties.neighbors import ROWS_PER_GROUP
from sae_lens_c2r.penalties.tiles import edge_of_square_tile

RESULTS = Path("benchmarks/results")
IMPLEMENTATIONS = ("naive", "plain", "ours")


@dataclass(frozen=True)
class Sizes:
    """Of one comparison; a chunk size of None searches the whole dictionary."""

    d_sae: int
    d_in: int
    batch_size: int
    chunk_size: int | None

    @property
    def candidates(self) -> int:
        """Latents to a chunk."""
        return min(self.chunk_size or self.d_sae, self.d_sae)


SIZES = {
    "cpu": [
        Sizes(d_sae, 768, 256, chunk_size)
        for d_sae, chunk_size in [
            (4096, 2048),
            (4096, None),
            (16384, 2048),
            (16384, 8192),
            (16384, None),
            (65536, 8192),
            (131072, 2048),
        ]
    ],
    "cuda": [
        Sizes(d_sae, 2304, 2048, chunk_size)
        for d_sae, chunk_size in [
            (4096, None),
            (16384, 8192),
            (16384, None),
            (65536, 2048),
            (65536, 8192),
            (65536, None),
            (131072, 8192),
        ]
    ],
}


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


def plain_penalty(feature_acts: Tensor, W_dec: Tensor, chunks: tuple[Tensor, ...]) -> Tensor:
    """Eq. (16) in chunks, by one who has seen where the naive one's time goes."""
    unit = torch.nn.functional.normalize(W_dec, dim=1)
    neighbors = torch.empty(len(W_dec), dtype=torch.long, device=W_dec.device)
    with torch.no_grad():
        for chunk in chunks:
            rows = unit[chunk]
            cosines = (rows @ rows.T).fill_diagonal_(-1.0)
            neighbors[chunk] = chunk[cosines.argmax(dim=1)]
    rho = (unit * unit[neighbors]).sum(dim=1).relu()
    norms = feature_acts.norm(dim=0)
    return (rho.square() * (norms + norms[neighbors])).mean()


class Comparison:
    """All penalties on the same inputs."""

    def __init__(self, sizes: Sizes, device: str) -> None:
        torch.manual_seed(0)
        self.sizes, self.device = sizes, device
        self.acts = torch.randn(sizes.batch_size, sizes.d_sae, device=device).relu()
        self.W_dec = torch.randn(sizes.d_sae, sizes.d_in, device=device)
        for tensor in (self.acts, self.W_dec):
            tensor.requires_grad_()
        order = torch.randperm(sizes.d_sae, generator=step_generator(0, 0)).to(device)
        self.chunks = order.split(sizes.candidates)

    def search(self) -> Tensor:
        """Our neighbours, as the training step finds them."""
        return nearest_neighbors(
            self.W_dec,
            chunk_size=self.sizes.chunk_size,
            generator=step_generator(0, 0),
            reduced_precision=True,
        )

    def measure(self, penalty: Callable[[], Tensor]) -> dict[str, float]:
        """Its value, times and memory."""
        inputs = (self.acts, self.W_dec)
        evaluated: list[Tensor] = []
        forward_s, backward_s = seconds(
            lambda: evaluated.append(penalty()),
            lambda: torch.autograd.grad(evaluated[-1], inputs),
            device=self.device,
        )
        kept: list[Tensor] = []
        at_forward = peak_bytes(lambda: kept.append(penalty()), self.device)
        at_both = peak_bytes(lambda: torch.autograd.grad(penalty(), inputs), self.device)
        gradients = sum(tensor.nbytes for tensor in inputs)
        return {
            "value": evaluated[-1].item(),
            "forward_s": forward_s,
            "backward_s": backward_s,
            "both_s": forward_s + backward_s,
            "extra_bytes": max(at_forward, at_both - gradients),
        }


def operations_of_search(sizes: Sizes, dtype: torch.dtype, device: str) -> int:
    """Multiplications and additions of the products of all tiles."""
    edge = edge_of_square_tile(dtype, torch.device(device), multiple_of=ROWS_PER_GROUP)
    cosines = 0
    for start in range(0, sizes.d_sae, sizes.candidates):
        chunk = min(sizes.candidates, sizes.d_sae - start)
        heights = [min(edge, chunk - row) for row in range(0, chunk, edge)]
        cosines += sum(
            height * width for i, height in enumerate(heights) for width in heights[i:]
        )
    return 2 * cosines * sizes.d_in


def compare(sizes: Sizes, device: str, peak: float, dtype: torch.dtype) -> dict[str, object]:
    """All figures of one comparison."""
    comparison = Comparison(sizes, device)
    acts, W_dec, search = comparison.acts, comparison.W_dec, comparison.search
    ours = comparison.measure(lambda: c2r_penalty(acts, W_dec, neighbors=search()))
    naive, plain = (
        comparison.measure(lambda other=other: other(acts, W_dec, comparison.chunks))  # type: ignore[misc]
        for other in (naive_penalty, plain_penalty)
    )
    assert math.isclose(ours["value"], naive["value"], rel_tol=0.01), "not the same penalty"
    [search_s] = seconds(search, device=device)
    return {
        **asdict(sizes),
        "ours": ours,
        "naive": naive,
        "plain": plain,
        "search_s": search_s,
        "search_share_of_peak": operations_of_search(sizes, dtype, device) / search_s / peak,
        "search_s_per_pair": search_s / (sizes.d_sae * sizes.candidates),
        "naive_time_over_ours": naive["both_s"] / ours["both_s"],
        "plain_time_over_ours": plain["both_s"] / ours["both_s"],
        "our_memory_over_naive": ours["extra_bytes"] / naive["extra_bytes"],
        "our_memory_over_plain": ours["extra_bytes"] / plain["extra_bytes"],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The comparisons in Markdown."""
    columns = ["k", "C", *(f"{which}: forward, backward" for which in IMPLEMENTATIONS)]
    columns += ["naive / ours", "plain / ours"]
    columns += [f"extra memory, {which}" for which in IMPLEMENTATIONS]
    columns += ["search, of peak", "search, per pair"]
    lines = [f"| {' | '.join(columns)} |", "|" + "--:|" * len(columns)]
    for row in rows:
        cells = [
            f"{row['d_sae']:,}",
            "all" if row["chunk_size"] is None else f"{row['chunk_size']:,}",
            *(milliseconds(row[which]) for which in IMPLEMENTATIONS),
            f"{row['naive_time_over_ours']:.1f}",
            f"{row['plain_time_over_ours']:.1f}",
            *(f"{row[which]['extra_bytes'] / 2**20:,.0f} MiB" for which in IMPLEMENTATIONS),
            f"{row['search_share_of_peak']:.2f}",
            f"{1e12 * row['search_s_per_pair']:,.0f} ps",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def milliseconds(measured: dict[str, float]) -> str:
    """Of the forward and the backward pass."""
    return f"{1e3 * measured['forward_s']:,.0f}, {1e3 * measured['backward_s']:,.0f} ms"


def main() -> None:
    """Measure all sizes, print the table, write both."""
    parser = ArgumentParser(description="The penalty against a naive implementation.")
    parser.add_argument("--device", choices=sorted(SIZES), default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    device = arguments.device
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    peak = matrix_product_peak(dtype, device)
    rows = [compare(sizes, device, peak, dtype) for sizes in track(SIZES[device])]
    write_results(
        arguments.out,
        f"penalty-{device}",
        f"python -m benchmarks.penalty --device {device}",
        device,
        rows,
        table(rows),
        matrix_product_peak_flops=peak,
        dtype_of_search=str(dtype),
    )


if __name__ == "__main__":
    main()
