"""Known features, parents and children, planted into a real model's activations."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sae_lens import SAE, synthetic
from torch import Tensor

from benchmarks.compare import Interval, label, points_of
from benchmarks.experiment import PLAIN, Drawn, Row, Run, read_sizes
from benchmarks.report import draw_schedules, of_full_length
from benchmarks.worlds.minilm_text import BATCH, MiniLMText, explained_variance, firing_measures
from sae_lens_c2r._support.files import fill_once
from sae_lens_c2r.analysis import co_firing, latents_of_features, latents_per_feature
from sae_lens_c2r.analysis.recovery import AbsorptionSums, Edge, found_parents
from sae_lens_c2r.reporting.tables import markdown_table

SHARE = 0.15  # of the variance, that is the planted features'
PARENTS, CHILDREN = 48, 4
# Of each parent from the most frequent to the rarest, and of a child where its parent is. No
# two children of one parent are there at once, so that in a third of the samples there is none.
P_PARENT, P_CHILD = (0.15, 0.02), 0.25
FOUND = 0.5  # the cosine from which on a latent is one of a feature
SAMPLES_SEED, EVALUATION_SEED = 1, 1_000_000
SIZES = read_sizes(Path(__file__))


class Forest:
    """Features in random directions, with probabilities; children fire with their parents."""

    def __init__(
        self, edges: Sequence[Edge], probabilities: Tensor, d_in: int, *, exclusive: bool
    ) -> None:
        n_features, node = len(probabilities), synthetic.HierarchyNode
        self.edges = edges
        self.features = synthetic.FeatureDictionary(
            n_features, d_in, bias=False, initializer=None
        )
        roots = [
            node(parent, [node(c) for p, c in edges if p == parent], exclusive)
            for parent in dict.fromkeys(parent for parent, _ in edges)
        ]
        modify = synthetic.hierarchy_modifier(roots)
        self.generator = synthetic.ActivationGenerator(
            n_features, probabilities, std_firing_magnitudes=0.15, modify_activations=modify
        )

    @torch.no_grad()
    def sample(self, n_samples: int) -> tuple[Tensor, Tensor]:
        """Return samples, and how strongly each feature is present in them."""
        feature_acts = self.generator.sample(n_samples)
        return self.features(feature_acts), feature_acts


class Planted(MiniLMText):
    """The activations and the features that are planted into them."""

    d_sae = 4096

    def __init__(self, run: Run, data: Path, device: str) -> None:
        super().__init__(run, data, device)
        torch.manual_seed(run.world_seed)
        # The parents come first.
        self.edges = [
            (parent, PARENTS + CHILDREN * parent + child)
            for parent in range(PARENTS)
            for child in range(CHILDREN)
        ]
        parents, children = torch.linspace(*P_PARENT, PARENTS), PARENTS * CHILDREN
        probabilities = torch.cat([parents, torch.full((children,), P_CHILD)])
        self.forest = Forest(self.edges, probabilities, self.d_in, exclusive=True)
        self.planted = data / f"planted-{self.size.pool}-{run.world_seed}" / "samples.npy"
        self.factor = self.planted.with_suffix(".txt")
        self.pools = [self.text, self.planted]  # each in an order of its own

    def prepare(self) -> None:
        """Collect the activations and plant the features, unless that was done before."""
        # Both are kept apart, so that in every pass other features are at other tokens.
        super().prepare()
        fill_once(self.planted.parent, self._plant)

    def _plant(self, folder: Path) -> None:
        text = torch.from_numpy(np.load(self.text))
        torch.manual_seed(SAMPLES_SEED + self.run.world_seed)
        planted = torch.cat([self.forest.sample(BATCH)[0] for _ in range(len(text) // BATCH)])
        of_text, of_planted = (each.var(dim=0).sum() for each in (text, planted))
        factor = (SHARE / (1 - SHARE) * of_text / of_planted).sqrt()
        (folder / self.factor.name).write_text(repr(factor.item()))
        np.save(folder / self.planted.name, (factor * planted).numpy())

    @torch.no_grad()
    def evaluate(self, sae: SAE[Any]) -> Row:
        vectors = self.forest.features.feature_vectors.to(self.device)
        text = torch.from_numpy(np.load(self.held_out)).to(self.device)
        torch.manual_seed(EVALUATION_SEED + self.run.world_seed)
        sampled = [self.forest.sample(len(batch)) for batch in text.split(BATCH)]
        planted, feature_acts = (
            torch.cat(each).to(self.device) for each in zip(*sampled, strict=True)
        )
        inputs = text + float(self.factor.read_text()) * planted
        latents, cosines = latents_of_features(sae.W_dec, vectors)
        sums, acts_of_all = AbsorptionSums(self.edges), []
        for batch, present in zip(inputs.split(BATCH), feature_acts.split(BATCH), strict=True):
            acts = sae.encode(batch)
            sums.add(acts[:, latents], present)
            acts_of_all.append(acts.to_sparse())
        together, full = co_firing(acts_of_all), sums.full()
        found = found_parents(self.edges, sae.W_dec, vectors)
        edges = torch.tensor(self.edges, device=self.device)
        parents, children = edges.unbind(dim=1)
        # One latent for both is the parent's, and the child has none.
        child_found = (cosines[children] > FOUND) & (latents[children] != latents[parents])
        of_found = torch.where(found & child_found.cpu(), full, torch.nan)
        split = latents_per_feature(sae.W_dec, vectors, above=FOUND)
        return {
            "explained_variance": explained_variance(sae, inputs),
            "real_explained_variance": explained_variance(sae, text),  # with nothing planted
            **firing_measures(sae, together),
            "features_found": (split > 0).double().mean().item(),
            "split": split[split > 0].double().mean().item(),
            "absorption": full[found].nanmean().item(),
            "absorption_of_all": full.nanmean().item(),
            "absorption_by_found_children": of_found.nanmean().item(),
            "absorption_of_edges": [  # `None` but where both were found
                None if each.isnan() else round(each.item(), 6) for each in of_found
            ],
            "parents_found": found.double().mean().item(),
            "children_found": child_found.double().mean().item(),
        }


def same_children_table(rows: pd.DataFrame) -> str:
    """Return absorption minus BatchTopK's by the children that both SAEs of a seed found."""
    by_method = {
        point: pd.DataFrame(ours.set_index("seed").absorption_of_edges.to_dict(), dtype=float)
        for point, ours in rows.groupby(["method", "strength"])
    }
    table = []
    for method, strength in points_of(rows):
        if method != PLAIN:
            gaps = by_method[method, strength] - by_method[PLAIN, 0]
            children, less = Interval.of(gaps.notna().sum()), Interval.of(gaps.mean())
            table.append([label(method, strength), f"{children.mean:.0f}", less.signed])
    return markdown_table(["", "children", f"absorption by them, minus {PLAIN}'s"], table)


def draw(rows: pd.DataFrame) -> Drawn:
    drawn = draw_schedules(rows, SIZES)
    [size] = SIZES["minilm"]
    if size.name in drawn.tables:
        longer, tables = replace(size, samples=size.other_samples[0]), drawn.tables[size.name]
        tables["same children"] = same_children_table(of_full_length(rows, size))
        tables["same children, longer"] = same_children_table(of_full_length(rows, longer))
    return drawn


open_world = Planted
