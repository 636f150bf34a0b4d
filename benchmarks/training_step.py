"""What C2R adds to a training step: `python -m benchmarks.training_step [--device cuda]`.

SAELens's trainer takes steps with a backbone and, in turn with it, with its C2R form. A step
that has the penalty and one that has not are timed by themselves: with a penalty at every
T-th step, the mean step takes (with + (T - 1) without) / T.
"""

import statistics
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from sae_lens import SAETrainer
from sae_lens.registry import get_sae_training_class
from torch import Tensor

from benchmarks.measure import synchronize, write_results
from benchmarks.trainer import trainer_config

RESULTS = Path("benchmarks/results")
INTERVALS = (1, 5, 20)
PAPERS_CHUNK_SIZE = 8192


@dataclass(frozen=True)
class Sizes:
    """Of the SAE and its batches."""

    d_sae: int
    d_in: int
    batch_size: int
    k: int


SIZES = {"cpu": Sizes(16384, 512, 2048, 32), "cuda": Sizes(65536, 2304, 2048, 100)}
ROUNDS = {"cpu": 3, "cuda": 20}  # of a step with the penalty and one without


@dataclass(frozen=True)
class Variant:
    """How the backbone trains."""

    backbone: str
    sparse: bool
    compiled: bool
    autocast: bool

    @property
    def name(self) -> str:
        """As it stands in the table."""
        layout = "sparse" if self.sparse else "dense"
        mode = "compiled" if self.compiled else "eager"
        return f"{self.backbone}, {layout}, {mode}" + (", autocast" if self.autocast else "")


def variants(device: str) -> list[Variant]:
    """All of them: only TopK has sparse activations, autocast is for GPUs."""
    kinds = [("batchtopk", False), ("topk", False), ("topk", True)]
    autocast = (False, True) if device == "cuda" else (False,)
    return [
        Variant(*kind, *modes)
        for kind, modes in product(kinds, product((False, True), autocast))
    ]


class Stepper:
    """Takes SAELens's training steps and times them."""

    def __init__(
        self, architecture: str, variant: Variant, device: str, **options: Any
    ) -> None:
        sizes = SIZES[device]
        torch.manual_seed(0)
        sae_class, config_class = get_sae_training_class(architecture)
        if variant.backbone == "topk":
            options["use_sparse_activations"] = variant.sparse
            if variant.sparse and device == "cpu":  # SAELens's step has no backward pass then
                options["rescale_acts_by_decoder_norm"] = False
        options |= {"d_in": sizes.d_in, "d_sae": sizes.d_sae, "k": sizes.k, "device": device}
        sae = sae_class(config_class(**options))
        if variant.compiled:  # as SAELens's runner does for `compile_sae=True`
            compiled = torch.compile(sae.training_forward_pass)
            sae.training_forward_pass = compiled  # type: ignore[method-assign]
        trainer_options = trainer_config(
            steps=10**6, batch_size=sizes.batch_size, device=device, autocast=variant.autocast
        )
        self.batches = batches(sizes, device)
        self.trainer: SAETrainer[Any, Any] = SAETrainer(
            cfg=trainer_options, sae=sae, data_provider=self.batches
        )
        self.device = device

    def step(self, number: int) -> float:
        """Take the step of a number, and time it."""
        self.trainer.n_training_steps = number
        batch = next(self.batches)
        synchronize(self.device)
        start = time.perf_counter()
        self.trainer.step(batch)
        synchronize(self.device)
        return time.perf_counter() - start


def batches(sizes: Sizes, device: str) -> Iterator[Tensor]:
    """One batch of noise, for ever."""
    batch = torch.randn(sizes.batch_size, sizes.d_in, device=device)
    while True:
        yield batch


def compare(variant: Variant, chunk_size: int | None, device: str) -> dict[str, Any]:
    """The backbone's steps and, in turn with them, those of its C2R form."""
    plain = Stepper(variant.backbone, variant, device)
    interval = 2
    regularized = Stepper(
        f"{variant.backbone}_c2r",
        variant,
        device,
        c2r_chunk_size=chunk_size,
        c2r_interval=interval,
    )
    times: dict[str, list[float]] = {"plain": [], "with": [], "without": []}
    for number in range(interval * (ROUNDS[device] + 1)):
        taken = {
            "plain": plain.step(number),
            "without" if number % interval else "with": regularized.step(number),
        }
        if number >= interval:  # the first of each compile and allocate
            for kind, seconds in taken.items():
                times[kind].append(seconds)
    medians = {kind: statistics.median(of_kind) for kind, of_kind in times.items()}
    overhead = {
        T: (medians["with"] + (T - 1) * medians["without"]) / T / medians["plain"]
        for T in INTERVALS
    }
    return {
        **asdict(variant),
        "chunk_size": chunk_size,
        "seconds": medians,
        "step_over_plain": overhead,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The comparisons in Markdown."""
    intervals = " | ".join(f"T = {T}" for T in INTERVALS)
    lines = [
        f"| backbone | neighbours among | step without C2R | penalty step | {intervals} |",
        "|---|--:|--:|--:|" + "--:|" * len(INTERVALS),
    ]
    for row in rows:
        variant = Variant(*(row[field] for field in Variant.__dataclass_fields__))
        cells = [
            variant.name,
            "all" if row["chunk_size"] is None else f"{row['chunk_size']:,}",
            f"{1e3 * row['seconds']['plain']:,.1f} ms",
            f"{1e3 * row['seconds']['with']:,.1f} ms",
            *(f"{row['step_over_plain'][T]:.3f}" for T in INTERVALS),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure all variants, print the table, write both."""
    parser = ArgumentParser(description="What C2R adds to SAELens's training step.")
    parser.add_argument("--device", choices=sorted(SIZES), default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    device = arguments.device
    cases = list(product(variants(device), (PAPERS_CHUNK_SIZE, None)))
    rows = [compare(*case, device) for case in track(cases)]
    write_results(
        arguments.out,
        f"training_step-{device}",
        f"python -m benchmarks.training_step --device {device}",
        device,
        rows,
        table(rows),
        sizes=asdict(SIZES[device]),
    )


if __name__ == "__main__":
    main()
