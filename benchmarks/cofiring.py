"""Co-firing against a naive implementation: `python -m benchmarks.cofiring`.

The naive one keeps the firing of every latent on every token, and every Jaccard, at once. It
is left out where it would take more than 8 GB. Latents fire as those of a trained SAE do, a
few of them often and most of them rarely: by Zipf's law, up to k on every token. Memory is
what is taken beside a batch.
"""

import math
from argparse import ArgumentParser
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor

from benchmarks.measure import peak_bytes, seconds, write_results
from sae_lens_c2r.analysis import CoFiring, co_firing

RESULTS = Path("benchmarks/results")
BATCH_SIZE = 1000
MOST_BYTES = 8e9


@dataclass(frozen=True)
class Sizes:
    """Of one comparison."""

    d_sae: int
    n_tokens: int
    k: int

    @property
    def naive_bytes(self) -> int:
        """At least: the firing once, and the Jaccards with what they are computed from."""
        return 4 * self.d_sae * (self.n_tokens + 3 * self.d_sae)


SIZES = [
    Sizes(1024, 10_000, 32),
    Sizes(4096, 25_000, 32),
    Sizes(4096, 25_000, 400),
    Sizes(65_536, 100_000, 32),
]
QUICK = [Sizes(256, 1000, 8)]


def activations(sizes: Sizes) -> list[Tensor]:
    """Sparse batches of activations."""
    generator = torch.Generator().manual_seed(0)
    shares = (torch.arange(sizes.d_sae) + 10.0).pow(-0.8).cumsum(0)
    order = torch.randperm(sizes.d_sae, generator=generator)
    batches = []
    for _ in range(sizes.n_tokens // BATCH_SIZE):
        drawn = shares[-1] * torch.rand(BATCH_SIZE * sizes.k, generator=generator)
        token = torch.arange(BATCH_SIZE).repeat_interleave(sizes.k)
        latent = torch.searchsorted(shares, drawn).clamp(max=sizes.d_sae - 1)
        at = torch.stack([token, order[latent]])
        values, shape = torch.ones(at.shape[1]), (BATCH_SIZE, sizes.d_sae)
        batches.append(torch.sparse_coo_tensor(at, values, shape, check_invariants=True))
    return batches


def naive_co_firing(batches: list[Tensor]) -> tuple[float, int]:
    """Its definition, of all tokens and pairs at once: the mean, and the pairs above 0.5."""
    fires = torch.cat([batch.to_dense() for batch in batches]).ne(0).float()
    times_fired = fires.sum(dim=0)
    both = fires.T @ fires
    jaccards = both / (times_fired[:, None] + times_fired - both).clamp(min=1)
    jaccards.fill_diagonal_(0)
    mean = jaccards.amax(dim=1).sum() / (times_fired > 0).sum()
    return mean.item(), int((jaccards > 0.5).sum()) // 2


def compare(sizes: Sizes) -> dict[str, object]:
    """Times and memory of both, which find the same."""
    batches = activations(sizes)
    runs: list[CoFiring] = []
    ours_s = seconds(lambda: runs.append(co_firing(iter(batches))), device="cpu")[0]
    found = runs[-1]
    row: dict[str, object] = {
        **asdict(sizes),
        "highest_jaccard": found.mean,
        "chance": found.chance,
        "ours_s": ours_s,
        "ours_bytes": peak_bytes(lambda: co_firing(iter(batches)), "cpu"),
    }
    if sizes.naive_bytes < MOST_BYTES:
        mean, pairs = naive_co_firing(batches)
        assert math.isclose(found.mean, mean, rel_tol=1e-5), "not the same Jaccard"
        assert found.pairs[0.5] == pairs, "not the same pairs"
        row["naive_s"] = seconds(lambda: naive_co_firing(batches), device="cpu")[0]
        row["naive_bytes"] = peak_bytes(lambda: naive_co_firing(batches), "cpu")
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """In Markdown."""
    lines = [
        "| latents | tokens | k | ours | naive | memory, ours | memory, naive |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        naive = f"{row['naive_s']:,.1f} s" if "naive_s" in row else ""
        naive_memory = f"{row['naive_bytes'] / 1e6:,.0f} MB" if "naive_bytes" in row else ""
        lines.append(
            f"| {row['d_sae']:,} | {row['n_tokens']:,} | {row['k']} | {row['ours_s']:,.1f} s | "
            f"{naive} | {row['ours_bytes'] / 1e6:,.0f} MB | {naive_memory} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure all sizes, print the table, write it."""
    parser = ArgumentParser(description="Co-firing against a naive implementation.")
    parser.add_argument("--quick", action="store_true", help="One small size.")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows = [compare(sizes) for sizes in track(QUICK if arguments.quick else SIZES)]
    command = "python -m benchmarks.cofiring"
    write_results(arguments.out, "cofiring-cpu", command, "cpu", rows, table(rows))


if __name__ == "__main__":
    main()
