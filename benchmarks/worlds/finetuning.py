"""Fine-tuning of SAEs that exist, against the same steps without C2R and from scratch.

On hierarchies of known features. `sae-lens-c2r finetune` prints the same of any SAE.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from sae_lens import SAE
from torch.nn.functional import cosine_similarity

from benchmarks.compare import intervals
from benchmarks.experiment import Drawn, Row, Run, Size, fit, make_sae, read_yaml
from benchmarks.worlds.four_worlds import ALL, FourWorlds
from sae_lens_c2r.analysis import chance_composition, composition
from sae_lens_c2r.inspection.measures import cosine_summary
from sae_lens_c2r.reporting.tables import markdown_table
from sae_lens_c2r.saes.start_from import start_from

KNOWN = "finetuning/known features"
# Beyond the seeds of trainings, so that SAEs are fine-tuned on samples that they have not seen.
UNSEEN = 1000


@dataclass(frozen=True)
class Way:
    """How an SAE comes about, as finetuning.yaml says it."""

    strength: float
    share: float
    slower: float = 1.0
    finetuned: bool = False


DATA = read_yaml(Path(__file__))
WAYS = {name: Way(**about) for name, about in DATA["ways"].items()}
BEFORE, MORE, *_ = WAYS
OF_KNOWN, KEPT = DATA["known features"], DATA["kept"]


def sizes(steps: int, seeds: int) -> list[Size]:
    """Return the SAEs of all ways, after so many steps of the SAE before."""
    return [
        Size(
            *(KNOWN, [6], round(way.share * steps) * 256, 256, {name: [way.strength]}),
            lr=3e-3 / way.slower,
            seeds=seeds,
        )
        for name, way in WAYS.items()
    ]


SIZES = {"known features": sizes(2000, 5), "quick": sizes(20, 2)}


class Finetuning(FourWorlds):
    """Hierarchies of known features, and SAEs of them that are trained on."""

    def __init__(self, run: Run, data: Path, device: str) -> None:
        self.way = WAYS[run.method]
        method = "C2R" if self.way.strength else "BatchTopK"
        super().__init__(replace(run, world=ALL[0].world, method=method), data, device)
        self.run = run
        self.steps_before = round(run.steps / self.way.share)
        window = {"dead_feature_window": self.steps_before // 10}  # as before
        self.trainer_options = {**self.trainer_options, **window}

    @cached_property
    def before(self) -> SAE[Any]:
        """The SAE before, trained if need be."""
        *_, run = sizes(self.steps_before, self.run.seed + 1)[0].runs()
        return Finetuning(run, self.data, self.device).trained()

    def train(self, folder: Path) -> None:
        seed = self.run.seed
        torch.manual_seed(seed)
        sae = make_sae(self)
        if self.way.finetuned:
            sae, seed = start_from(self.before, sae.cfg), seed + UNSEEN
        fit(sae, self, seed).save_inference_model(folder)

    @torch.no_grad()
    def evaluate(self, sae: SAE[Any]) -> Row:
        live = sae.W_dec[(sae.encode(next(self.batches(54321, 16_384))) > 0).any(dim=0)]
        kept = torch.ones(1)
        if self.way.finetuned:
            kept = cosine_similarity(sae.W_dec, self.before.W_dec)
        return {
            **super().evaluate(sae),
            "composition_of_live": composition(live),
            "chance_of_live": chance_composition(*live.shape),
            **cosine_summary(kept),
        }


open_world = Finetuning


def known_table(rows: pd.DataFrame) -> str:
    """Return the table of known features, and differences to two of its rows by seed."""
    found = {name: rows[rows.method == name].set_index("seed") for name in WAYS}
    head, table = ["", *OF_KNOWN.values()], []
    of_known = {name: here[list(OF_KNOWN)] for name, here in found.items()}
    for name, way in WAYS.items():
        # Only of an SAE that was trained on are the latents those of the SAE before.
        of_kept = intervals(found[name][list(KEPT)]) if way.finetuned else [""] * len(KEPT)
        table.append([name, *intervals(of_known[name]), *of_kept])
    parts = [markdown_table([*head, *KEPT.values()], table)]
    for base in (BEFORE, MORE):
        others = (name for name in WAYS if name not in (BEFORE, base))
        table = [[name, *intervals(of_known[name] - of_known[base])] for name in others]
        parts += [f"Less “{base}”, seed by seed:", markdown_table(head, table)]
    chance = found[BEFORE].chance_composition.mean()
    parts.append(f"{len(found[BEFORE])} seeds; chance level of composition {chance:.3f}.")
    return "\n\n".join(parts)


def draw(rows: pd.DataFrame) -> Drawn:
    return Drawn({"tables": {"known features": known_table(rows[rows.world == KNOWN])}})
