"""The study's SAEs: which, and how one is trained."""

from dataclasses import asdict, dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

import torch
from sae_lens import SAE, SAETrainer
from sae_lens.registry import get_sae_training_class

from benchmarks.study.world import REGIMES, Regime, World
from benchmarks.trainer import trainer_config

Options = tuple[tuple[str, Any], ...]
SEEDS = range(5)
STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 256, 3e-3
METHODS = ("topk", "batchtopk", "matryoshka_batchtopk", "ort", "batchtopk_c2r")
LAMBDAS = (0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 50.0)  # the last two are not in the paper
LONGER = (2, 4)
TRAINED_LONGER = {"batchtopk": "BatchTopK", "batchtopk_c2r": "C2R", "ort": "OrtSAE"}
ORT_COEFFICIENTS = (0.25, 1.0, 4.0, 16.0)  # the first is the paper's


@dataclass(frozen=True)
class Run:
    """One SAE.

    Args:
        regime: Name of the world's kind.
        architecture: SAELens's name of what is trained.
        k: Sparsity.
        options: Other fields of its config.
        seed: Seed of the world, of the weights and of the samples.
        steps: Training steps.
    """

    regime: str
    architecture: str
    k: int
    options: Options = ()
    seed: int = 0
    steps: int = field(default=STEPS, kw_only=True)


def runs_of(regime: Regime, *, seeds: int, steps: int) -> list[Run]:
    """The paper's comparisons in one regime, each SAE once."""
    middle = regime.ks[0]

    def run(
        architecture: str, k: int = middle, **options: Any
    ) -> tuple[str, str, int, Options]:
        return regime.name, architecture, k, tuple(options.items())

    wanted = [run(method, k) for k in regime.ks for method in METHODS]
    wanted += [run("batchtopk_c2r", c2r_coefficient=value) for value in LAMBDAS if value != 5]
    wanted += [run("ort", ort_coefficient=value) for value in ORT_COEFFICIENTS[1:]]
    wanted += [run("batchtopk_c2r", c2r_pairs="all"), run("batchtopk_c2r", c2r_gate="none")]
    wanted += [run(name) for name in ("topk_c2r", "ort_c2r", "abstopk", "abstopk_c2r")]
    wanted += [run("batchtopk_c2r", c2r_interval=interval) for interval in (1, 20)]
    wanted += [run("batchtopk_c2r", c2r_chunk_size=None)]
    return [
        Run(*each, seed, steps=steps) for seed in range(seeds) for each in dict.fromkeys(wanted)
    ]


def longer_runs_of(regime: Regime, *, seeds: int, steps: int) -> list[Run]:
    """The comparisons whose absorption is shown by training length, trained for longer."""
    return [
        Run(regime.name, method, regime.ks[0], (), seed, steps=steps * times)
        for times in LONGER
        for seed in range(seeds)
        for method in TRAINED_LONGER
    ]


def key(run: dict[str, Any]) -> tuple[Any, ...]:
    """What tells runs apart, of a run or of its result."""
    options = tuple(sorted((name, value) for name, value in run["options"]))
    return run["regime"], run["architecture"], run["k"], options, run["seed"], run["steps"]


def execute(run: Run) -> dict[str, Any]:
    """Train and measure one SAE, in the form in which anybody would load it."""
    torch.set_num_threads(1)
    regime = REGIMES[run.regime]
    world = World(regime, run.seed)
    sae_class, config_class = get_sae_training_class(run.architecture)
    options: dict[str, Any] = {"d_in": regime.d_in, "d_sae": regime.d_sae, "k": run.k}
    if run.architecture not in ("topk", "topk_c2r", "abstopk", "abstopk_c2r"):
        options["topk_threshold_lr"] = 0.05
    if run.architecture == "matryoshka_batchtopk":
        options["matryoshka_widths"] = [regime.d_sae // part for part in (32, 8, 4, 2, 1)]
    if "ort" in run.architecture.split("_"):
        options["ort_chunk_size"] = regime.d_sae // 8  # as the paper's 8,192 of 65,536
    if run.architecture.endswith("_c2r"):
        options["c2r_chunk_size"] = regime.d_sae // 8
    torch.manual_seed(run.seed)
    sae = sae_class(config_class(**{**options, **dict(run.options)}))
    config = trainer_config(
        steps=run.steps,
        batch_size=BATCH_SIZE,
        lr=LEARNING_RATE,
        lr_end=LEARNING_RATE / 10,
        lr_warm_up_steps=run.steps // 20,
        lr_decay_steps=run.steps // 5,
        dead_feature_window=run.steps // 10,
    )
    torch.manual_seed(run.seed)
    SAETrainer(cfg=config, sae=sae, data_provider=world.samples(BATCH_SIZE)).fit()
    with TemporaryDirectory() as folder:
        sae.save_inference_model(folder)
        saved: SAE[Any] = SAE.load_from_disk(folder)
    return {**asdict(run), **world.evaluate(saved)}
