"""Four worlds of known features in trees, and in each of them the paper's claims."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from sae_lens import SAE, synthetic
from torch import Tensor

from benchmarks.compare import Contrast, at_strength, intervals, over_seeds, verdict
from benchmarks.experiment import METHODS, Drawn, Row, Run, Size, World, read_yaml
from sae_lens_c2r import analysis
from sae_lens_c2r.analysis.recovery import AbsorptionSums, hierarchy_edges
from sae_lens_c2r.reporting.tables import markdown_table

EVALUATION_SAMPLES, BATCH = 32_768, 4096
EQUAL = 0.01  # of explained variance or a correlation: what is lost below it is preserved
DATA = read_yaml(Path(__file__))
WORLDS, SAES, METRICS = DATA["worlds"], DATA["saes"], DATA["metrics"]
MAIN = {method: strength for method, [strength] in SAES["everywhere"].items()}
LENGTHS = {method: strength for method, [strength] in SAES["by_length"].items()}
ALL = [Size(f"four_worlds/{name}", about["ks"], **SAES) for name, about in WORLDS.items()]
QUICK = replace(ALL[0], samples=25_600, other_samples=(51_200, 102_400), seeds=2)
SIZES = {"all": ALL, "quick": [QUICK]}
text_table = partial(markdown_table, text=range(1 + len(METRICS)))


class FourWorlds(World):
    """Known features in trees, of unequal frequencies: a child fires with its parent only."""

    def __init__(self, run: Run, data: Path, device: str) -> None:
        super().__init__(run, data, device)
        about = WORLDS[run.world.partition("/")[2]]
        n_features, self.d_in, self.d_sae = about["n_features"], about["d_in"], about["d_sae"]
        config = {
            **DATA["features"],
            **{"num_features": n_features, "hidden_dim": self.d_in, "seed": run.world_seed},
            "hierarchy": {"total_root_nodes": n_features // 4, **DATA["hierarchy"]},
        }
        self.model = synthetic.SyntheticModel(synthetic.SyntheticModelConfig.from_dict(config))
        assert self.model.hierarchy is not None
        self.edges = hierarchy_edges(self.model.hierarchy.roots)
        self.sae_options = {
            "topk_threshold_lr": 0.05,
            "matryoshka_widths": [self.d_sae // part for part in (32, 8, 4, 2, 1)],
            "ort_chunk_size": self.d_sae // 8,  # as the paper's 8,192 of 65,536
            "c2r_chunk_size": self.d_sae // 8,
        }
        warm_up, window = run.steps // 20, run.steps // 10
        self.trainer_options = {"lr_warm_up_steps": warm_up, "dead_feature_window": window}

    def batches(self, seed: int, batch_size: int) -> Iterator[Tensor]:
        torch.manual_seed(seed)
        while True:
            yield self.model.sample(batch_size)

    @torch.no_grad()
    def evaluate(self, sae: SAE[Any]) -> Row:
        torch.manual_seed(12345)
        features = self.model.feature_dict
        found = synthetic.eval_sae_on_synthetic_data(
            sae, features, self.model.activation_generator, EVALUATION_SAMPLES, BATCH
        )
        feature_acts = self.model.activation_generator(EVALUATION_SAMPLES)
        acts = sae.encode(features(feature_acts))
        latents, _ = analysis.latents_of_features(sae.W_dec, features.feature_vectors)
        own = acts[:, latents].clamp(min=0)
        absorption = AbsorptionSums(self.edges)
        absorption.add(own, feature_acts)
        full = absorption.full()
        split = analysis.latents_per_feature(sae.W_dec, features.feature_vectors)
        pairs = analysis.absorption_pairs(sae.W_dec, acts.split(BATCH))
        return {
            "explained_variance": found.explained_variance,
            "l0": found.sae_l0,
            "dead_latents": found.dead_latents / sae.cfg.d_sae,
            "mcc": found.mcc,
            "f1": found.classification.f1_score,
            "composition": analysis.composition(sae.W_dec),
            "chance_composition": analysis.chance_composition(*sae.W_dec.shape),
            "absorption": full.nanmean().item(),
            "partial_absorption": absorption.partial().nanmean().item(),
            "pearson": self._correlation_with_frequency(feature_acts, full),
            "split": split[split > 0].double().mean().item(),
            "features_found": (split > 0).double().mean().item(),
            "condition_satisfied": pairs.satisfied.double().mean().item(),
            "median_A_over_B": (pairs.A / pairs.B).median().item() if len(pairs) else nan,
        }

    def _correlation_with_frequency(self, feature_acts: Tensor, rates: Tensor) -> float:
        """Return how absorption goes with the parent's frequency, NaN if it never varies."""
        absorbed = pd.Series(rates.numpy()).groupby([parent for parent, _ in self.edges]).mean()
        frequencies = feature_acts[:, absorbed.index.tolist()].bool().double().mean(dim=0)
        return absorbed.corr(pd.Series(frequencies.numpy(), absorbed.index), min_periods=3)


@dataclass(frozen=True)
class Claim:
    """A line of four_worlds.yaml, which says what the fields are."""

    claim: str
    metric: str
    of: tuple[str, float]
    expected: int
    less: tuple[str, float | str] | None = None
    number: float = 0.0
    paper: str = ""

    def measured(self, rows: pd.DataFrame) -> tuple[str, str]:
        """Return the verdict, and it with the difference in one world that it rests on."""
        (method, strength), metrics = self.of, [self.metric]
        if self.less is None:
            values = at_strength(rows, method, strength, metrics) - self.number
        else:
            other, at = self.less
            values = Contrast(method, other, (strength, at)).by_seed_and_k(rows, metrics)
        found = over_seeds(values)[self.metric]
        said = verdict(found, self.expected, EQUAL if self.expected == 0 else 0.0)
        said = {"yes": "agrees", "no": "differs"}.get(said, said)
        return said, f"**{said}** {replace(found, mean=found.mean + self.number).signed}"


CLAIMS, FURTHER = ([Claim(**each) for each in DATA[part]] for part in ("claims", "further"))


def draw(rows: pd.DataFrame) -> Drawn:
    worlds = {size.name: rows[rows.world == size.world] for size in ALL}
    worlds = {name: ours for name, ours in worlds.items() if len(ours)}
    least = rows.samples.min()
    short = {name: ours[ours.samples == least] for name, ours in worlds.items()}
    words = ("agrees", "undecided", "differs")
    verdicts, claims = pd.DataFrame(index=list(short)), []
    for claim in CLAIMS:
        verdicts[claim.claim], cells = zip(*map(claim.measured, short.values()), strict=True)
        claims.append([claim.claim, claim.paper, *cells])
    claims += [
        [claim, paper, *[f"cannot be tested here: {why}"] * len(short)]
        for claim, paper, why in DATA["untested"]
    ]
    counts = [
        [name, *(str((column == word).sum()) for word in words)]
        for name, column in verdicts.T.items()
    ]
    further = [
        [each.claim, *(each.measured(ours)[1] for ours in short.values())] for each in FURTHER
    ]
    tables = {
        "claims": text_table(["claim", "the paper", *short], claims),
        "verdicts": text_table(["", *words], counts),
        "further": text_table(["claim", *short], further),
        **{name: world_tables(name, ours) for name, ours in short.items()},
        "lengths": lengths_table(worlds),
    }
    return Drawn({"tables": tables})


def world_tables(name: str, rows: pd.DataFrame) -> str:
    """Return what one world is, its methods at all sparsities, and all else at the first."""
    about, names = WORLDS[name], METRICS.values()
    described = DATA["described"].format(**about, chance=rows.chance_composition.iloc[0])

    def cells(k: float, method: str, strength: float) -> list[str]:
        return intervals(at_strength(rows[rows.k == k], method, strength, list(METRICS)))

    methods = [
        [f"{METHODS[method].architecture}, k {k}", *cells(k, method, strength)]
        for k in sorted(about["ks"])
        for method, strength in MAIN.items()
    ]
    k, others = about["ks"][0], []
    for method, strengths in SAES["methods"].items():
        for strength in (each for each in strengths if each != MAIN.get(method)):
            of = METHODS[method]
            options = {of.coefficient: strength} if method in MAIN else of.options
            said = [of.architecture, *(f"{name} {value}" for name, value in options.items())]
            others.append([", ".join(said), *cells(k, method, strength)])
    tables = [text_table(["", *names], methods), text_table([f"k {k}", *names], others)]
    return "\n\n".join([described, *tables])


def lengths_table(by_name: dict[str, pd.DataFrame]) -> str:
    """Return absorption after every number of steps that there is, at the first sparsity."""
    judged = [claim for claim in CLAIMS if claim.claim in DATA["by length"]]
    table = []
    for name, rows in by_name.items():
        k = WORLDS[name]["ks"][0]
        for samples, then in rows[rows.k == k].groupby("samples"):
            found = [at_strength(then, *each, ["absorption"]) for each in LENGTHS.items()]
            cells = [
                *chain(*map(intervals, found)),
                *(each.measured(then)[1] for each in judged),
            ]
            table.append([name, str(k), f"{samples // SAES['batch_size']:,}", *cells])
    head = ["", "k", "steps", *LENGTHS, *(claim.claim for claim in judged)]
    return markdown_table(head, table)


open_world = FourWorlds
