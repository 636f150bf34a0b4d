"""What C2R adds to a training step: `python -m benchmarks.training_step [--device cuda]`.

SAELens's trainer takes steps with a backbone and, in turn with it, steps with a penalty. With
one at every T-th step, the mean step takes (with it + (T - 1) without) / T. Its ratio to the
backbone's step is the median over rounds, in each of which both are timed: what slows a machine
for a while slows them alike.
"""

from argparse import Namespace
from collections.abc import Callable
from itertools import product, repeat
from statistics import median
from typing import Any

import torch
from rich.progress import track
from sae_lens import SAETrainer
from sae_lens.config import SAETrainerConfig
from sae_lens.registry import get_sae_training_class

from benchmarks.measure import TIMINGS, main, timer
from benchmarks.rows import Row

INTERVALS = (1, 5, 20)
DATA = TIMINGS["training_step"]


def stepper(
    architecture: str, variant: Row, size: str, device: str, **options: Any
) -> Callable[[int], object]:
    """Return a function that has SAELens's trainer take the step of a number."""
    d_sae, d_in, batch_size, k = DATA["sizes"][size]
    torch.manual_seed(0)
    sae_class, config_class = get_sae_training_class(architecture)
    if variant["layout"] == "sparse":
        options["use_sparse_activations"] = True
        # Otherwise SAELens's step has no backward pass on a CPU.
        options["rescale_acts_by_decoder_norm"] = False
    options |= {"d_in": d_in, "d_sae": d_sae, "k": k, "device": device}
    sae = sae_class(config_class(**options))
    batch = torch.randn(batch_size, d_in, device=device)
    about: Row = {"device": device, "autocast": variant["autocast"]}
    config = SAETrainerConfig(10**6 * batch_size, batch_size, lr=1e-3, lr_end=1e-3, **about)
    trainer: SAETrainer[Any, Any] = SAETrainer(cfg=config, sae=sae, data_provider=repeat(batch))

    def step(number: int) -> object:
        trainer.n_training_steps = number
        return trainer.step(batch)

    return step


def compare(variant: Row, chunk_size: int | None, size: str, device: str) -> Row:
    """Time the backbone's steps and, in turn with them, those of its C2R form."""
    plain = stepper(variant["backbone"], variant, size, device)
    about: Row = {"c2r_chunk_size": chunk_size, "c2r_interval": 2}
    regularized = stepper(f"{variant['backbone']}_c2r", variant, size, device, **about)
    timers = {"plain": timer(lambda: plain(0)), "with": timer(lambda: regularized(0))}
    rounds = [
        {kind: 1e3 * each.timeit(2).median for kind, each in timers.items()}
        for _ in range(DATA["rounds"][size])
    ]
    overhead = {
        T: median((ms["with"] / ms["plain"] + T - 1) / T for ms in rounds) for T in INTERVALS
    }
    chunk = "all" if chunk_size is None else f"{chunk_size:,}"
    ms = {kind: median(ms[kind] for ms in rounds) for kind in timers}
    return {**variant, "chunk": chunk, "ms": ms, "step_over_plain": overhead}


def measure(options: Namespace) -> list[Row]:
    """Return the rows of all variants."""
    size, device = options.size, options.device
    variants = [
        {"backbone": backbone, "layout": layout, "autocast": DATA["autocast"][size]}
        for backbone, layout in DATA["kinds"]
    ]
    cases = track(list(product(variants, DATA["chunk_sizes"])))
    return [compare(variant, chunk_size, size, device) for variant, chunk_size in cases]


if __name__ == "__main__":
    main("training_step", __doc__, measure)
