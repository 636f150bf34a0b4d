"""Does lambda transfer? The experiment behind `c2r_scaling="transfer"`."""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, product, starmap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from sae_lens import SAE
from torch import Tensor

from benchmarks.experiment import Drawn, Row, Run, Size, World, read_yaml
from benchmarks.report import lines_figure
from benchmarks.worlds.minilm_text import explained_variance, text_activations
from benchmarks.worlds.planted import Forest
from sae_lens_c2r.analysis import chance_composition, composition, latents_of_features
from sae_lens_c2r.analysis.recovery import AbsorptionSums
from sae_lens_c2r.penalties import scaling, typical_norm
from sae_lens_c2r.reporting.tables import markdown_table

DATA = read_yaml(Path(__file__))
LAMBDAS: list[float] = DATA["lambdas"]
POINTS: dict[str, str] = DATA["points"]
FIXED, MINILM = "fixed hierarchy", "minilm"
N_CHILDREN, P_CHILD = 3, 0.25
ACTIVE_PARENTS = 1.92  # of a sample, in mean
FIXED_FEATURES = 128
STEPS, MINILM_TOKENS = 500, 200_000  # of hierarchies, and of MiniLM
TOLERATED_LOSS = 0.01  # of explained variance: what is lost beyond it, the knee lies before
COMPOSITION, EXPLAINED = "composition above chance", "explained variance"


@dataclass(frozen=True, order=True)
class Setting:
    """What lambda should not depend on."""

    data: str
    batch_size: int
    d_sae: int
    d_in: int
    scale: float

    def size(self) -> Size:
        """Return the SAEs of every lambda."""
        minilm = self.data == MINILM
        steps = math.ceil(MINILM_TOKENS / self.batch_size) if minilm else STEPS
        k = 32.0 if minilm else ACTIVE_PARENTS * (1 + N_CHILDREN * P_CHILD)
        about = f"{self.d_sae} latents, {self.d_in} dimensions, scale {self.scale:g}"
        return Size(
            f"transfer/{self.data}, {about}",
            (k,),
            steps * self.batch_size,
            self.batch_size,
            {"C2R": LAMBDAS},
            lr=1e-3 if minilm else 3e-3,
            decay=1 / 3,
            seeds=3,
            world_seed=0 if minilm else None,
        )


SETTINGS = {
    (each.size().world, each.batch_size): each for each in starmap(Setting, DATA["settings"])
}
SIZES = {
    "all": [each.size() for each in SETTINGS.values()],
    "quick": [replace(each.size(), seeds=1) for each in list(SETTINGS.values())[:3]],
}


def factors(setting: Setting, norm: float) -> dict[str, float]:
    """Return the factors of the rule, for inputs of a norm."""
    candidates = min(scaling.PAPER_CANDIDATES, setting.d_sae)
    per_latent = setting.d_sae / setting.batch_size
    papers = scaling.PAPER_D_SAE / scaling.PAPER_BATCH_SIZE
    return {
        "r": norm,
        "sqrt(k/B)": math.sqrt(per_latent / papers),
        "d": setting.d_in / scaling.PAPER_D_IN,
        "ln n": math.log(scaling.PAPER_CANDIDATES) / math.log(candidates),
    }


def rules(setting: Setting, norm: float) -> dict[str, float]:
    """Return what the rule, and each that is like it, multiplies lambda by."""
    parts = factors(setting, norm)
    whole = math.prod(parts.values())
    without = {f"without {name}": whole / part for name, part in parts.items()}
    return {"the rule": whole, **without, "none": 1.0}


class Transfer(World):
    """Inputs of a setting, and lambda as the rule gives it for them."""

    def __init__(self, run: Run, data: Path, device: str) -> None:
        super().__init__(run, data, device)
        self.setting = SETTINGS[run.world, run.batch_size]
        self.d_in, self.d_sae = self.setting.d_in, self.setting.d_sae
        warm_up = run.steps // 12
        self.trainer_options = {"lr_warm_up_steps": warm_up, "dead_feature_window": 200}

    def find_literal(self) -> None:
        """Find the inputs' norm and the literal coefficient, by a first batch."""
        batch = next(self.batches(self.run.seed, self.run.batch_size))
        self.norm = typical_norm(batch).item()
        self.literal = self.run.strength * rules(self.setting, self.norm)["the rule"]
        scaled = {"c2r_coefficient": self.literal, "c2r_scaling": "none"}
        self.sae_options = {"topk_threshold_lr": 0.05, **scaled}

    def measures(self, sae: SAE[Any], inputs: Tensor) -> Row:
        """Measure composition, and the explained variance of inputs."""
        return {
            "literal_coefficient": self.literal,
            "norm": self.norm,
            "composition": composition(sae.W_dec),
            "chance_composition": chance_composition(self.d_sae, self.d_in),
            "explained_variance": explained_variance(sae, inputs),
        }


class Hierarchy(Transfer):
    """Features in trees, in superposition: half as many as latents, or always as many."""

    # Their directions are random, so that a latent that has found its feature is as close to
    # its nearest neighbour as chance makes it: the case that the rule is derived for.

    def __init__(self, run: Run, data: Path, device: str) -> None:
        super().__init__(run, data, device)
        torch.manual_seed(run.world_seed)
        n_features = FIXED_FEATURES if self.setting.data == FIXED else self.d_sae // 2
        parents = range(0, n_features, 1 + N_CHILDREN)
        edges = [(p, p + child) for p in parents for child in range(1, 1 + N_CHILDREN)]
        probabilities = torch.full((n_features,), P_CHILD)
        probabilities[list(parents)] = ACTIVE_PARENTS / len(parents)
        self.forest = Forest(edges, probabilities, self.d_in, exclusive=False)
        self.find_literal()

    def batches(self, seed: int, batch_size: int) -> Iterator[Tensor]:  # noqa: ARG002
        while True:
            yield self.setting.scale * self.forest.sample(batch_size)[0]

    @torch.no_grad()
    def evaluate(self, sae: SAE[Any]) -> Row:
        torch.manual_seed(12345)
        samples, feature_acts = self.forest.sample(16384)
        inputs, vectors = self.setting.scale * samples, self.forest.features.feature_vectors
        latents, _ = latents_of_features(sae.W_dec, vectors)
        absorption = AbsorptionSums(self.forest.edges)
        absorption.add(sae.encode(inputs)[:, latents], feature_acts)
        return {**self.measures(sae, inputs), "absorption": absorption.full().mean().item()}


class MiniLM(Transfer):
    """MiniLM's activations, collected once; fewer dimensions are their principal ones."""

    def __init__(self, run: Run, data: Path, device: str) -> None:
        super().__init__(run, data, device)
        self.folder = data / "minilm-transfer"
        if self.folder.exists():  # as it does once it was prepared
            activations, scale = _activations(self.folder, self.d_in), self.setting.scale
            self.training, self.held_out = (scale * each for each in activations)
            self.find_literal()

    def draw_shared(self, folder: Path) -> None:
        torch.save(text_activations(MINILM_TOKENS, sys.maxsize), folder / "activations.pt")

    def batches(self, seed: int, batch_size: int) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        while True:
            order = torch.randperm(len(self.training), generator=generator)
            yield from (self.training[batch] for batch in order.split(batch_size)[:-1])

    @torch.no_grad()
    def evaluate(self, sae: SAE[Any]) -> Row:
        return self.measures(sae, self.held_out)


@cache
def _activations(folder: Path, d_in: int) -> tuple[Tensor, Tensor]:
    training, held_out = torch.load(folder / "activations.pt", weights_only=True)
    if d_in == training.shape[1]:
        return training, held_out
    _, axes = torch.linalg.eigh(training.T.cov())  # by rising variance
    return training @ axes[:, -d_in:], held_out @ axes[:, -d_in:]


def open_world(run: Run, *arguments: Any) -> World:
    return (MiniLM if f"/{MINILM}" in run.world else Hierarchy)(run, *arguments)


@dataclass(frozen=True)
class Curve:
    """What became of one setting as lambda grew from 0, in mean over the seeds."""

    setting: Setting
    norm: float
    multipliers: dict[str, float]  # what each rule multiplies lambda by
    means: pd.DataFrame  # a row for each lambda, rising

    def literal_at(self, point: str) -> float:
        """Return the literal coefficient at one of `POINTS`, NaN if it is never reached."""
        metric = COMPOSITION if point == "halfway" else EXPLAINED
        values, literal = self.means[metric].to_numpy(), self.means.literal_coefficient
        target = values[0] / 2 if point == "halfway" else values[0] - TOLERATED_LOSS
        grid = np.geomspace(literal.iloc[1] / 100, literal.iloc[-1], 5000)
        down = grid[np.interp(grid, literal, values) <= target]
        return down[0] if len(down) else math.nan


def curves_of(rows: pd.DataFrame) -> list[Curve]:
    """Return the curves of seeds that have every lambda."""
    place = ["world", "batch_size"]
    whole = rows.groupby([*place, "seed"]).strength.transform("size") == len(LAMBDAS)
    above_chance = rows.composition - rows.chance_composition
    ours = rows.assign(**{COMPOSITION: above_chance, EXPLAINED: rows.explained_variance})
    curves = []
    for where, here in ours[whole].groupby(place):
        means = here.groupby("strength").mean(numeric_only=True)
        setting, norm = SETTINGS[where], here.norm.mean()
        curves.append(Curve(setting, norm, rules(setting, norm), means))
    return sorted(curves, key=lambda curve: curve.setting)


def turns(curves: Sequence[Curve], rule: str, point: str) -> pd.Series:
    """Return where curves come to a point by a rule, those that do, as logarithms to 10."""
    found = [each.literal_at(point) / each.multipliers[rule] for each in curves]
    return np.log10(pd.Series(found).dropna())


def by_data(curves: Sequence[Curve]) -> dict[str, list[Curve]]:
    """Return the curves, which come in order, of each kind of data."""
    return {kind: list(of) for kind, of in groupby(curves, lambda curve: curve.setting.data)}


def turns_table(curves: Sequence[Curve]) -> str:
    """Return for every rule where the curves turn, and how far apart they do."""
    table = []
    for rule, (data, ours) in product(curves[0].multipliers, by_data(curves).items()):
        cells = []
        for point in POINTS:
            logs = turns(ours, rule, point)
            middle = f"{10 ** logs.mean():.2g}" if len(logs) else ""
            spread = f"{logs.std():.2f}" if len(logs) > 1 else ""
            cells += [middle, spread, f"{len(logs)} of {len(ours)}"]
        table.append([rule, data, *cells])
    return markdown_table(DATA["turns"], table, text=(0, 1))


def exponents_table(curves: Sequence[Curve]) -> str:
    """Return the literal coefficient as a product of powers, by least squares."""
    table = [["the rule", "", "1", "-0.5", "0.5", "1"]]
    for (point, title), (data, ours) in product(POINTS.items(), by_data(curves).items()):
        sizes, targets = [], []
        for each in ours:
            at, literal = each.setting, each.literal_at(point)
            if not math.isnan(literal):
                sizes.append([math.e, each.norm, at.batch_size, at.d_sae, at.d_in])
                targets.append(literal / factors(at, each.norm)["ln n"])
        if not targets:
            continue
        fitted = np.linalg.lstsq(np.log(sizes), np.log(targets), rcond=None)[0][1:]
        varies = np.ptp(np.log(sizes)[:, 1:], axis=0) > math.log(1.5)
        exponents = np.where(varies, np.char.mod("%.2f", fitted), "")
        table.append([title, data, *map(str, exponents)])
    head = ["at", "data", *(f"exponent of {name}" for name in ("r", "B", "k", "d"))]
    return markdown_table(head, table, text=(0, 1))


def figure(curves: Sequence[Curve]) -> Figure:
    """Draw a row for every rule, a column for every metric, a line for every setting."""
    parts = []
    for rule, curve in product(curves[0].multipliers, curves):
        # A logarithmic axis has no place for lambda 0, from which explained variance changes.
        change = curve.means[EXPLAINED] - curve.means[EXPLAINED].iloc[0]
        x = curve.means.literal_coefficient / curve.multipliers[rule]
        about = {"row": rule, "line": curve.setting.data, "group": str(curve.setting)}
        means = curve.means.assign(x=x, point=x, **about, **{f"{EXPLAINED}, change": change})
        parts.append(means.iloc[1:])
    ys = (COMPOSITION, "absorption", f"{EXPLAINED}, change")
    return lines_figure(pd.concat(parts), {y: y for y in ys}, "lambda", log=True)


def draw(rows: pd.DataFrame) -> Drawn:
    curves = curves_of(rows)
    tables = {"tables": f"{turns_table(curves)}\n\n{exponents_table(curves)}"}
    return Drawn({"tables": tables}, lambda: {"curves": figure(curves)})
