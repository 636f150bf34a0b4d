"""Four worlds of known features in trees, and in each of them the paper's claims."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from sae_lens import SAE, synthetic
from scipy import stats
from torch import Tensor

from benchmarks.compare import Contrast, Interval, at_strength, intervals, over_seeds, verdict
from benchmarks.experiment import METHODS, Drawn, Row, Run, Size, World, read_yaml
from benchmarks.show import lines_figure
from sae_lens_c2r import analysis
from sae_lens_c2r.analysis.recovery import AbsorptionSums, hierarchy_edges
from sae_lens_c2r.reporting.tables import markdown_table

EVALUATION_SAMPLES, BATCH = 32_768, 4096
FREQUENCY_GROUPS = 5
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

    def __init__(self, run: Run, _data: Path, _device: str = "cpu") -> None:
        about = WORLDS[run.world.partition("/")[2]]
        n_features, self.d_in, self.d_sae = about["n_features"], about["d_in"], about["d_sae"]
        trees = {"total_root_nodes": n_features // 4, **DATA["hierarchy"]}
        shape = {"num_features": n_features, "hidden_dim": self.d_in, "seed": run.world_seed}
        config = {**DATA["features"], **shape, "hierarchy": trees}
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
        """Yield fresh samples for ever."""
        torch.manual_seed(seed)
        while True:
            yield self.model.sample(batch_size)

    @torch.no_grad()
    def evaluate(self, sae: SAE[Any]) -> Row:
        """Measure what the paper measures, and what only known features can tell."""
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
        full, partial = absorption.full(), absorption.partial()
        frequencies, rates = self._absorption_of_parents(feature_acts, full)
        split = analysis.latents_per_feature(sae.W_dec, features.feature_vectors)
        pairs = analysis.absorption_pairs(sae.W_dec, acts.split(BATCH))
        return {
            "explained_variance": found.explained_variance,
            "l0": found.sae_l0,
            "dead_latents": found.dead_latents / sae.cfg.d_sae,
            "mcc": found.mcc,
            "uniqueness": found.uniqueness,
            "precision": found.classification.precision,
            "recall": found.classification.recall,
            "f1": found.classification.f1_score,
            "composition": analysis.composition(sae.W_dec),
            "chance_composition": analysis.chance_composition(*sae.W_dec.shape),
            "absorption": full.nanmean().item(),
            "partial_absorption": partial.nanmean().item(),
            "absorption_by_frequency": [
                fifth.nanmean().item() for fifth in rates.tensor_split(FREQUENCY_GROUPS)
            ],
            "pearson": _correlation(stats.pearsonr, frequencies, rates),
            "spearman": _correlation(stats.spearmanr, frequencies, rates),
            "split": split[split > 0].double().mean().item(),
            "features_found": (split > 0).double().mean().item(),
            "condition_pairs": len(pairs),
            "condition_satisfied": pairs.satisfied.double().mean().item(),
            "median_A_over_B": (pairs.A / pairs.B).median().item() if len(pairs) else nan,
        }

    def _absorption_of_parents(self, feature_acts: Tensor, rates: Tensor) -> list[Tensor]:
        """Return frequencies of the parents, rising, and each one's absorption."""
        parents = torch.tensor([parent for parent, _ in self.edges])
        each = parents.unique()
        frequencies = feature_acts[:, each].bool().double().mean(dim=0)
        absorbed = torch.stack([rates[parents == parent].nanmean() for parent in each])
        return [values[frequencies.argsort()] for values in (frequencies, absorbed)]


def _correlation(of: Callable[..., Any], frequencies: Tensor, rates: Tensor) -> float:
    known = ~rates.isnan()
    if known.sum() < 3 or rates[known].unique().numel() < 2:
        return nan  # it is of nothing that varies
    return float(of(frequencies[known].numpy(), rates[known].numpy()).statistic)


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

    def measured(self, rows: pd.DataFrame) -> Interval:
        """Return the difference in one world, each seed's in mean over the sparsities."""
        (method, strength), metrics = self.of, [self.metric]
        if self.less is None:
            values = at_strength(rows, method, strength, metrics) - self.number
        else:
            other, at = self.less
            values = Contrast(method, other, (strength, at)).by_seed_and_k(rows, metrics)
        return over_seeds(values)[self.metric]

    def verdict(self, rows: pd.DataFrame) -> str:
        """Return what the difference says of the claim."""
        smallest = EQUAL if self.expected == 0 else 0.0
        said = verdict(self.measured(rows), self.expected, smallest)
        return {"yes": "agrees", "no": "differs"}.get(said, said)

    def judged(self, rows: pd.DataFrame) -> str:
        """Return the verdict and the difference that it rests on, in Markdown."""
        found = self.measured(rows)
        return (
            f"**{self.verdict(rows)}** {replace(found, mean=found.mean + self.number).signed}"
        )


CLAIMS, FURTHER = ([Claim(**each) for each in DATA[part]] for part in ("claims", "further"))


def tables(rows: pd.DataFrame) -> dict[str, str]:
    """Return all tables by their names: those of one training length, and of all lengths."""
    short = by_world(rows[rows.samples == rows.samples.min()])
    words = ("agrees", "undecided", "differs")
    claims = [[each.claim, each.paper, *map(each.judged, short.values())] for each in CLAIMS]
    claims += [
        [claim, paper, *[f"cannot be tested here: {why}"] * len(short)]
        for claim, paper, why in DATA["untested"]
    ]
    further = [[each.claim, *map(each.judged, short.values())] for each in FURTHER]
    found = {name: [claim.verdict(ours) for claim in CLAIMS] for name, ours in short.items()}
    counts = [
        [name, *(str(said.count(each)) for each in words)] for name, said in found.items()
    ]
    return {
        "claims": text_table(["claim", "the paper", *short], claims),
        "verdicts": text_table(["", *words], counts),
        "further": text_table(["claim", *short], further),
        **{name: world_tables(name, ours) for name, ours in short.items()},
        "lengths": lengths_table(by_world(rows)),
    }


def by_world(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of each of the four that there are rows of."""
    found = {size.name: rows[rows.world == size.world] for size in ALL}
    return {name: ours for name, ours in found.items() if len(ours)}


def world_tables(name: str, rows: pd.DataFrame) -> str:
    """Return what one world is, its methods at all sparsities, and all else at the first."""
    about, chance = WORLDS[name], rows.chance_composition.iloc[0]
    described = (
        f"{about['n_features']} features in {about['d_in']} dimensions, {about['d_sae']} "
        f"latents. Chance level of composition: {chance:.3f}."
    )

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
    return "\n\n".join(
        [
            described,
            text_table(["", *METRICS.values()], methods),
            text_table([f"k {k}", *METRICS.values()], others),
        ]
    )


def lengths_table(by_name: dict[str, pd.DataFrame]) -> str:
    """Return absorption after every number of steps that there is, at the first sparsity."""
    judged = [claim for claim in CLAIMS if claim.claim in DATA["by length"]]
    table = []
    for name, rows in by_name.items():
        k = WORLDS[name]["ks"][0]
        for samples, then in rows[rows.k == k].groupby("samples"):
            found = [at_strength(then, *each, ["absorption"]) for each in LENGTHS.items()]
            cells = [*chain(*map(intervals, found)), *(each.judged(then) for each in judged)]
            table.append([name, str(k), f"{samples // SAES['batch_size']:,}", *cells])
    head = ["", "k", "steps", *LENGTHS, *(claim.claim for claim in judged)]
    return markdown_table(head, table)


def figures(rows: pd.DataFrame) -> dict[str, Figure]:
    """Draw the trade-off of each method, the course of lambda, and absorption by frequency."""
    rows = rows.assign(
        x=rows.explained_variance, point=rows.k, world=rows.world.str.partition("/")[2]
    )
    main = rows[[MAIN.get(run.method) == run.strength for run in rows.itertuples()]]
    main = main.assign(column=main.world, line=main.method)
    where = ["column", "line", "point", "x"]
    trade_offs = main.melt(where, ["absorption", "composition"], "row", "y")
    first_k = rows.world.map(lambda world: WORLDS[world]["ks"][0])
    swept = rows[(rows.method == "C2R") & (rows.k == first_k)]
    swept = swept.assign(line=swept.world, point=swept.strength, x=swept.strength, row="")
    metrics = ["explained_variance", "composition", "absorption"]
    over_lambda = swept.melt(["row", "line", "point", "x"], metrics, "column", "y")
    fifths = main.explode("absorption_by_frequency")
    fifths["point"] = fifths["x"] = fifths.groupby(level=0).cumcount() + 1
    fifths["y"] = fifths.absorption_by_frequency.astype(float)
    by_seed = fifths.groupby([*where, "seed"], as_index=False, sort=False).y.mean()
    return {
        "trade_offs": lines_figure(trade_offs, "explained variance"),
        "lambda": lines_figure(over_lambda, "lambda", log=True),
        "frequency": lines_figure(by_seed.assign(row="absorption"), "fifth, rare to frequent"),
    }


def draw(rows: pd.DataFrame) -> Drawn:
    """Draw all tables and figures."""
    shown = tables(rows)
    drawn = partial(figures, rows[rows.samples == rows.samples.min()])
    return Drawn({"tables": shown}, drawn)


open_world = FourWorlds
