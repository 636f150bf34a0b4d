"""What C2R adds to a training step: `python -m benchmarks.training_step [--device cuda]`.

SAELens's trainer takes steps with a backbone and, in turn with it, with its C2R form. With a
penalty at every T-th step, the mean step takes (with it + (T - 1) without) / T.
"""

from collections.abc import Callable
from itertools import product, repeat
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from sae_lens import SAETrainer
from sae_lens.registry import get_sae_training_class
from torch.utils.benchmark import Measurement

from benchmarks.experiment import Row, read_yaml, trainer_config
from benchmarks.measure import keep, options_of, timer
from sae_lens_c2r.reporting.tables import markdown_table

INTERVALS = (1, 5, 20)
DATA = read_yaml(Path(__file__).with_name("timings.yaml"))["training_step"]


def stepper(
    architecture: str, variant: Row, size: str, device: str, **options: Any
) -> Callable[[int], object]:
    """Return what has SAELens's trainer take the step of a number."""
    d_sae, d_in, batch_size, k = DATA["sizes"][size]
    torch.manual_seed(0)
    sae_class, config_class = get_sae_training_class(architecture)
    if variant["layout"] == "sparse":
        options["use_sparse_activations"] = True
        # SAELens's step has no backward pass on a CPU otherwise.
        options["rescale_acts_by_decoder_norm"] = device != "cpu"
    options |= {"d_in": d_in, "d_sae": d_sae, "k": k, "device": device}
    sae = sae_class(config_class(**options))
    if variant["mode"] == "compiled":  # as SAELens's runner does for `compile_sae=True`
        compiled = torch.compile(sae.training_forward_pass)
        sae.training_forward_pass = compiled  # type: ignore[method-assign]
    batch = torch.randn(batch_size, d_in, device=device)
    about = {"device": device, "autocast": variant["autocast"]}
    config = trainer_config(steps=10**6, batch_size=batch_size, **about)
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
    timers = {
        "plain": timer(lambda: plain(0)),
        "with": timer(lambda: regularized(0)),
        "without": timer(lambda: regularized(1)),
    }
    rounds = [[each.timeit(1) for each in timers.values()] for _ in range(DATA["rounds"][size])]
    merged = [Measurement.merge(times)[0] for times in zip(*rounds, strict=True)]
    medians = dict(zip(timers, (each.median for each in merged), strict=True))
    overhead = {
        T: (medians["with"] + (T - 1) * medians["without"]) / T / medians["plain"]
        for T in INTERVALS
    }
    return {**variant, **about, "seconds": medians, "step_over_plain": overhead}


def main() -> None:
    """Measure all variants, and keep the table."""
    options = options_of(__doc__)
    variants = [
        {"backbone": backbone, "layout": layout, "mode": mode, "autocast": autocast}
        for (backbone, layout), mode, autocast in product(
            DATA["kinds"], DATA["modes"][options.size], DATA["autocast"][options.size]
        )
    ]
    cases = track(list(product(variants, DATA["chunk_sizes"])))
    size, device = options.size, options.device
    rows = [compare(variant, chunk_size, size, device) for variant, chunk_size in cases]
    table = [
        [
            f"{row['backbone']}, {row['layout']}, {row['mode']}"
            + (", autocast" if row["autocast"] else ""),
            "all" if row["c2r_chunk_size"] is None else f"{row['c2r_chunk_size']:,}",
            *(f"{1e3 * row['seconds'][kind]:,.1f} ms" for kind in ("plain", "with")),
            *(f"{row['step_over_plain'][T]:.3f}" for T in INTERVALS),
        ]
        for row in rows
    ]
    head = ["backbone", "neighbours among", "step without C2R", "penalty step"]
    head += [f"T = {T}" for T in INTERVALS]
    keep(options, "training_step", rows, markdown_table(head, table))


if __name__ == "__main__":
    main()
