"""One SAE of the benchmark: trained by SAELens's trainer, measured as anybody would load it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch
from sae_lens import SAE, SAETrainer, TrainingSAE
from sae_lens.registry import get_sae_training_class
from torch import Tensor

from benchmarks.parallel import read
from benchmarks.synth_sae_bench.controls import CONTROLS
from benchmarks.synth_sae_bench.methods import METHODS, Run
from benchmarks.synth_sae_bench.world import Size
from benchmarks.trainer import trainer_config


class World(Protocol):
    """What SAEs are trained on, and measured by."""

    size: Size
    d_in: int
    d_sae: int
    folder: Path

    def generate(self, processes: int) -> None:
        """Make what is missing of the samples, so many processes at a time."""

    def batches(self, seed: int, batch_size: int) -> Iterator[Tensor]:
        """Samples for ever, in an order of the seed's own."""

    def evaluate(self, sae: SAE[Any]) -> dict[str, Any]:
        """The measures of an SAE."""


def key(run: dict[str, Any]) -> tuple[Any, ...]:
    """What tells runs apart, of a run or of its result."""
    return tuple(run[name] for name in Run.__dataclass_fields__)


def results_of(runs: Sequence[Run], path: Path) -> list[dict[str, Any]]:
    """What there is of the results of some runs, in a file that may have others."""
    keys = {key(asdict(run)) for run in runs}
    return [result for result in read(path) if key(result) in keys]


def execute(of: tuple[Run, Callable[[str], World], str]) -> dict[str, Any]:
    """Train one SAE and measure it.

    Args:
        of: The run, what opens its world on a device, and the device.

    Returns:
        The run with its measures.
    """
    run, open_world, device = of
    if device == "cpu":
        torch.set_num_threads(1)
    world = open_world(device)
    saved = world.folder / "saes" / "-".join(map(str, key(asdict(run)))).replace(" ", "_")
    if not (saved / "cfg.json").exists():
        train(run, world, device).save_inference_model(saved)
    return {**asdict(run), **world.evaluate(SAE.load_from_disk(saved, device=device))}


def train(run: Run, world: World, device: str) -> TrainingSAE[Any]:
    """The SAE of a run, trained.

    Args:
        run: Which one.
        world: What it is trained on.
        device: Where.

    Returns:
        The training SAE.
    """
    torch.manual_seed(run.seed)
    sae = make_sae(run, world, device)
    steps = run.training_samples // run.batch_size
    config = trainer_config(
        steps=steps,
        batch_size=run.batch_size,
        device=device,
        autocast=world.size.autocast or device != "cpu",
        lr=run.lr,
        lr_end=run.lr / 10,
        lr_decay_steps=int(run.decay * steps),
    )
    batches = (batch.to(device) for batch in world.batches(run.seed, run.batch_size))
    return SAETrainer(cfg=config, sae=sae, data_provider=batches).fit()


def make_sae(run: Run, world: World, device: str) -> TrainingSAE[Any]:
    """The SAE of a run, untrained.

    Args:
        run: Which one.
        world: What it is trained on.
        device: Where.

    Returns:
        The training SAE.
    """
    method = METHODS[run.method]
    name = method.architecture
    sae_class, config_class = get_sae_training_class(
        "batchtopk_c2r" if name in CONTROLS else name
    )
    options: dict[str, Any] = {"d_in": world.d_in, "d_sae": world.d_sae, "device": device}
    fields = config_class.__dataclass_fields__
    of_all = {
        "k": run.k,
        "max_iterations": run.k,
        "matryoshka_widths": [world.d_sae // part for part in (32, 8, 2, 1)],
    }
    options |= {field: value for field, value in of_all.items() if field in fields}
    if method.coefficient is not None:
        options[method.coefficient] = run.strength
    config = config_class(**{**options, **dict(method.options)})
    return CONTROLS.get(name, sae_class)(config)
