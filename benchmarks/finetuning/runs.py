"""SAEs of known features: trained, trained on in four ways, and trained from scratch."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sae_lens import SAE
from torch.nn.functional import cosine_similarity

from benchmarks.study.world import REGIMES, World
from sae_lens_c2r.analysis import chance_composition, composition
from sae_lens_c2r.releases.files import release_of
from sae_lens_c2r.training.plan import make_plan
from sae_lens_c2r.training.train import train

REGIME = REGIMES["more latents than features"]
SEEDS = range(5)
STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 256, 3e-3
BEFORE, MORE = "before", "10 % more of BatchTopK"


@dataclass(frozen=True)
class Way:
    """How an SAE comes about.

    Args:
        name: What the table calls it.
        coefficient: Of C2R; `None` for BatchTopK alone.
        share: Steps, as a share of those of a training.
        slower: By what the learning rate is divided.
        finetuned: Whether it starts from an SAE that was trained.
    """

    name: str
    coefficient: float | None
    share: float
    slower: float = 1.0
    finetuned: bool = True


WAYS = (
    Way(BEFORE, None, 1.0, finetuned=False),
    Way(MORE, None, 0.1),
    Way("10 % with C2R", 5.0, 0.1),
    Way("10 % with C2R, a third of the learning rate", 5.0, 0.1, slower=3.0),
    Way("from scratch with C2R", 5.0, 1.1, finetuned=False),
)


@dataclass(frozen=True)
class Run:
    """One seed: the SAE before, and all that is made of it.

    Args:
        seed: Of the world, of the weights and of the samples.
        steps: Training steps of the SAE before.
        out: Folder for the SAEs.
    """

    seed: int
    steps: int
    out: str


def execute(run: Run) -> dict[str, Any]:
    """Train and measure the SAEs of one seed, each in the form in which anybody loads it."""
    torch.set_num_threads(1)
    world = World(REGIME, run.seed)
    found = {}
    for number, way in enumerate(WAYS):
        folder = Path(run.out) / f"seed_{run.seed}" / f"way_{number}"
        path = folder / "measured.json"
        if not path.is_file():  # what a run that was stopped has not come to
            path.write_text(json.dumps(_measured(run, way, world, folder)), encoding="utf-8")
        found[way.name] = json.loads(path.read_text(encoding="utf-8"))
    return {"seed": run.seed, "steps": run.steps, "ways": found}


def _measured(run: Run, way: Way, world: World, folder: Path) -> dict[str, Any]:
    before = Path(run.out) / f"seed_{run.seed}" / "way_0" / "sae"
    release = release_of(_document(run, way, world, before))
    plan = make_plan(release, device="cpu")
    [trained] = train(plan, folder, resume=True, log=lambda _: None) or [folder / "sae"]
    sae: SAE[Any] = SAE.load_from_disk(trained)
    origin: SAE[Any] = SAE.load_from_disk(before)
    found = world.evaluate(sae)
    live = sae.W_dec[_fires(sae, world)]
    names = ("composition", "chance_composition", "explained_variance", "l0", "dead_latents")
    kept = cosine_similarity(sae.W_dec, origin.W_dec) if way.finetuned else torch.ones(1)
    return {
        **{name: found[name] for name in (*names, "mcc", "absorption", "partial_absorption")},
        "composition_of_live": composition(live),
        "chance_of_live": chance_composition(*live.shape),
        "cosine_median": kept.median().item(),
        "cosine_1st_percentile": torch.quantile(kept, 0.01).item(),
    }


@torch.no_grad()
def _fires(sae: SAE[Any], world: World) -> torch.Tensor:
    torch.manual_seed(54321)
    return (sae.encode(next(world.samples(16_384))) > 0).any(dim=0)


def _document(run: Run, way: Way, world: World, before: Path) -> dict[str, Any]:
    """The release of one SAE, as a YAML file would say it."""
    steps = round(way.share * run.steps)
    lr = LEARNING_RATE / way.slower
    fields: dict[str, Any] = {
        "architecture": "batchtopk" if way.coefficient is None else "batchtopk_c2r",
        # Samples that it has not seen; SAEs that are compared see the same ones.
        "seed": run.seed + 1000 * way.finetuned,
        "k": REGIME.ks[0],
        "topk_threshold_lr": 0.05,
    }
    if way.coefficient is not None:
        fields |= {
            "c2r_coefficient": way.coefficient,
            "c2r_chunk_size": REGIME.d_sae // 8,
        }
    fields |= (
        {"init": {"folder": str(before)}}
        if way.finetuned
        else {"d_in": REGIME.d_in, "d_sae": REGIME.d_sae}
    )
    return {
        "name": "finetuned",
        "description": "SAEs of known features, trained on.",
        "license": "mit",
        "repo_id": "sae-lens-c2r/finetuned",
        "status": "planned",
        "synthetic_model": {
            "training_samples": steps * BATCH_SIZE,
            "config": world.model.cfg.to_dict(),
        },
        "runner": {
            "batch_size": BATCH_SIZE,
            "run_final_eval": False,
            "eval_frequency": 0,
            "lr": lr,
            "lr_end": lr / 10,
            "lr_warm_up_steps": steps // 20,
            "lr_decay_steps": steps // 5,
            "dead_feature_window": run.steps // 10,
        },
        "sae": fields,
        "grids": [{"id": "sae"}],
    }
