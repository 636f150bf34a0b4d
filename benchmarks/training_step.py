"""What C2R adds to a training step: `python -m benchmarks.training_step [--device cuda]`.

SAELens's trainer takes steps with a backbone, with our penalty, and with the same in plain
autograd, in turn. With a penalty at every T-th step, the mean step takes
(with it + (T - 1) without) / T. Its ratio to the backbone's is the median over rounds.
"""

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from itertools import product, repeat
from statistics import median
from typing import Any

import torch
from rich.progress import track
from sae_lens import SAETrainer
from sae_lens.config import SAETrainerConfig
from sae_lens.registry import get_sae_training_class
from torch import Tensor

from benchmarks.measure import TIMINGS, main, timer
from benchmarks.penalty import naive_penalty
from benchmarks.rows import Row
from sae_lens_c2r.penalties import step_generator
from sae_lens_c2r.penalties.neighbors import draw_chunks

EVERY = (1, 5, 20)  # T
DATA = TIMINGS["training_step"]


def stepper(
    architecture: str, variant: Row, device: str, *, naive: bool = False, **options: Any
) -> Callable[[int], object]:
    """Return a function that has SAELens's trainer take the step of a number."""
    torch.manual_seed(0)
    sae_class, config_class = get_sae_training_class(architecture)
    if variant["layout"] == "sparse":
        options["use_sparse_activations"] = True
        # Otherwise SAELens's step has no backward pass on a CPU.
        options["rescale_acts_by_decoder_norm"] = False
    d_in, batch_size = variant["d_in"], variant["batch_size"]
    options |= {"d_in": d_in, "d_sae": variant["d_sae"], "device": device}
    if "k" in config_class.__dataclass_fields__:
        options["k"] = variant["k"]
    sae: Any = sae_class(config_class(**options))
    if naive:
        sae.add_penalty("c2r", partial(measure_naively, sae))
    batch = torch.randn(batch_size, d_in, device=device)
    about: Row = {"device": device, "autocast": variant["autocast"]}
    config = SAETrainerConfig(10**6 * batch_size, batch_size, lr=1e-3, lr_end=1e-3, **about)
    trainer: SAETrainer[Any, Any] = SAETrainer(cfg=config, sae=sae, data_provider=repeat(batch))

    def step(number: int) -> object:
        trainer.n_training_steps = number
        return trainer.step(batch)

    return step


def measure_naively(sae: Any, acts: Tensor, _decoder: object, step: int) -> tuple[Any, ...]:
    """Return a step's penalty in plain autograd, which has no metrics."""
    draw = sae.cfg.c2r_chunk_size, step_generator(sae.cfg.c2r_seed, step), None
    if not getattr(sae.cfg, "rescale_acts_by_decoder_norm", False):
        acts = acts.to_dense() * sae.W_dec.norm(dim=1)
    return naive_penalty(acts, sae.W_dec, draw_chunks(sae.W_dec, draw)), None


def compare(variant: Row, chunk_size: int | None, size: str, device: str) -> Row:
    """Time the backbone's steps and, in turn with them, those of its C2R forms."""
    about: Row = {"c2r_chunk_size": chunk_size, "c2r_interval": 2}
    name = f"{variant['backbone']}_c2r"
    steps = {
        "plain": stepper(variant["backbone"], variant, device),
        "with": stepper(name, variant, device, **about),
        "naive": stepper(name, variant, device, naive=True, **about),
    }
    timers = {kind: timer(partial(step, 0)) for kind, step in steps.items()}
    rounds = [
        {kind: 1e3 * each.timeit(2).median for kind, each in timers.items()}
        for _ in range(DATA["rounds"][size])
    ]
    overhead = {
        kind: {T: median((ms[kind] / ms["plain"] + T - 1) / T for ms in rounds) for T in EVERY}
        for kind in ("with", "naive")
    }
    return {
        **variant,
        "chunk": "all" if chunk_size is None else f"{chunk_size:,}",
        "ms": {kind: median(ms[kind] for ms in rounds) for kind in timers},
        "step_over_plain": overhead["with"],
        "naive_over_plain": overhead["naive"],
    }


def measure(options: Namespace) -> list[Row]:
    """Return the rows of all variants."""
    size, device = options.size, options.device
    names = ("backbone", "layout", "d_sae", "d_in", "batch_size", "k", "autocast")
    cases = product(DATA["sizes"][size], DATA["kinds"][size], DATA["chunk_sizes"][size])
    rows = []
    for shape, kind, chunk_size in track(list(cases)):
        if chunk_size is not None and chunk_size >= shape[0]:
            continue  # the same as all
        variant = dict(zip(names, (*kind, *shape, DATA["autocast"][size]), strict=True))
        rows.append(compare(variant, chunk_size, size, device))
    return rows


if __name__ == "__main__":
    main("training_step", __doc__, measure)
