"""The runs: what they are, one of them, and all that are still missing."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from sae_lens import JumpReLUSAE, SAETrainer

from benchmarks.parallel import read
from benchmarks.trainer import trainer_config
from benchmarks.transfer.data import Hierarchy, MiniLM
from benchmarks.transfer.rules import LAMBDAS, Setting, rules
from sae_lens_c2r import BatchTopKC2RTrainingSAE, BatchTopKC2RTrainingSAEConfig
from sae_lens_c2r.analysis import chance_composition, composition
from sae_lens_c2r.penalties import typical_norm
from sae_lens_c2r.penalties.gates import Gate

SEEDS = (0, 1, 2)


@dataclass(frozen=True, order=True)
class Run:
    """One SAE: a setting, the lambda that the rule is given, a seed, and the gate."""

    setting: Setting
    lambda_: float
    seed: int
    gate: Gate = "relu"


BATCH_SIZES, WIDTHS, DIMENSIONS = (128, 512, 1024), (128, 256, 512), (48, 96, 192)


def hierarchy_runs(gate: Gate) -> list[Run]:
    """The middle of everything, each other value by itself, and all extremes together."""
    middle = (512, 256, 96)
    alone = [(b, 256, 96) for b in BATCH_SIZES]
    alone += [(512, k, 96) for k in WIDTHS]
    alone += [(512, 256, d) for d in DIMENSIONS]
    corners = list(product(BATCH_SIZES[::2], WIDTHS[::2], DIMENSIONS[::2]))
    places = [(*place, 1.0) for place in dict.fromkeys(alone + corners)]
    places += [(*middle, scale) for scale in (0.01, 100.0)]
    settings = [Setting("hierarchy", *place) for place in places]
    # As many features whatever the width: the same in the middle, where both have 128.
    settings += [Setting("fixed hierarchy", *place) for place in places if place[1] != 256]
    return _runs(settings, gate)


def minilm_runs(gate: Gate) -> list[Run]:
    """The middle of everything, and each other value by itself."""
    places = [(1024, 1024, 384, scale) for scale in (1.0, 0.01, 100.0)]
    places += [(b, 1024, 384, 1.0) for b in (512, 2048)]
    places += [(1024, k, 384, 1.0) for k in (512, 2048)]
    places += [(1024, 1024, d, 1.0) for d in (96, 192)]
    settings = [Setting("minilm", *place) for place in places]
    return _runs(settings, gate)


def _runs(settings: Iterable[Setting], gate: Gate) -> list[Run]:
    """Lambda 0 is the same SAE for every gate, and trained once."""
    return [
        Run(setting, lambda_, seed, gate if lambda_ else "relu")
        for setting, lambda_, seed in product(settings, LAMBDAS[gate], SEEDS)
    ]


def execute(run: Run) -> dict[str, Any]:
    """Train and measure one SAE."""
    torch.set_num_threads(1)
    setting = run.setting
    data = (MiniLM if setting.data == "minilm" else Hierarchy)(setting, run.seed)
    norm = typical_norm(next(data.batches())).item()
    literal = run.lambda_ * rules(setting, norm, run.gate)["the rule"]
    torch.manual_seed(run.seed)
    sae = BatchTopKC2RTrainingSAE(
        BatchTopKC2RTrainingSAEConfig(
            d_in=setting.d_in,
            d_sae=setting.d_sae,
            k=data.k,
            topk_threshold_lr=0.05,
            c2r_coefficient=literal,
            c2r_scaling="none",
            c2r_gate=run.gate,
        )
    )
    config = trainer_config(
        steps=data.steps,
        batch_size=setting.batch_size,
        lr=data.learning_rate,
        lr_end=data.learning_rate / 10,
        lr_warm_up_steps=data.steps // 12,
        lr_decay_steps=data.steps // 3,
        dead_feature_window=200,
    )
    SAETrainer(cfg=config, sae=sae, data_provider=data.batches()).fit()
    with TemporaryDirectory() as folder:
        sae.save_inference_model(folder)
        saved = JumpReLUSAE.load_from_disk(folder)
    return {
        **asdict(run),
        "literal_coefficient": literal,
        "norm": norm,
        "composition": composition(saved.W_dec),
        "chance_composition": chance_composition(setting.d_sae, setting.d_in),
        **data.evaluate(saved),
    }


def missing(runs: Iterable[Run], results: Path) -> list[Run]:
    """The runs that have no line in the results yet."""
    done = {key(result) for result in read(results)}
    return [run for run in runs if key(asdict(run)) not in done]


def key(result: dict[str, Any]) -> tuple[Any, ...]:
    """What tells runs apart."""
    return (*result["setting"].values(), result["lambda_"], result["seed"], result["gate"])
