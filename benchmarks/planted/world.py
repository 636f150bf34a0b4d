"""A transformer's activations with features planted into them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sae_lens import SAE
from sae_lens.evals import ExplainedVarianceCalculator
from sae_lens.synthetic import (
    ActivationGenerator,
    FeatureDictionary,
    HierarchyNode,
    hierarchy_modifier,
)
from torch import Tensor

from benchmarks.minilm import D_IN, text_activations
from benchmarks.synth_sae_bench.world import BATCH, Size
from sae_lens_c2r.analysis import (
    chance_composition,
    co_firing,
    composition,
    latents_of_features,
    latents_per_feature,
)
from sae_lens_c2r.analysis.recovery import AbsorptionSums, found_parents, hierarchy_edges

D_SAE = 4096
SHARE = 0.15  # of the variance, that is the planted features'
PARENTS, CHILDREN = 48, 4
N_FEATURES = PARENTS * (1 + CHILDREN)
# Of each parent from the most frequent to the rarest, and of a child where its parent is. No
# two children of one parent are there at once, so that in a third of the samples there is none.
P_PARENT, P_CHILD = (0.15, 0.02), 0.25
FOUND = 0.5  # the cosine from which on a latent is one of a feature
FEATURES_SEED, SAMPLES_SEED, EVALUATION_SEED = 0, 1, 1_000_000


class World:
    """The activations and the planted features, as they are kept on disk.

    Args:
        size: How much of them.
        folder: Where they are kept, and made where they are missing.
        device: Where SAEs are evaluated.
    """

    d_in, d_sae = D_IN, D_SAE

    def __init__(self, size: Size, folder: Path, device: str = "cpu") -> None:
        self.size, self.folder, self.device = size, folder / f"minilm-{size.pool}", device
        torch.manual_seed(FEATURES_SEED)
        # Random directions, orthogonal to nothing.
        self.features = FeatureDictionary(N_FEATURES, D_IN, bias=False, initializer=None)
        roots = _forest()
        self.edges = hierarchy_edges(roots)
        self.generator = ActivationGenerator(
            N_FEATURES,
            torch.cat(
                [
                    torch.linspace(*P_PARENT, PARENTS),
                    torch.full((N_FEATURES - PARENTS,), P_CHILD),
                ]
            ),
            std_firing_magnitudes=0.15,
            modify_activations=hierarchy_modifier(roots),
        )
        self.paths = {
            name: self.folder / f"{name}.npy" for name in ("text", "held_out", "planted")
        }

    def generate(self, processes: int) -> None:
        """Collect the activations and plant the features, unless that was done before.

        Both are kept apart, so that in every pass other features are at other tokens.

        Args:
            processes: Threads for the transformer.
        """
        torch.set_num_threads(processes)
        if self.paths["planted"].exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        text, held_out = text_activations(self.size.pool, self.size.evaluation)
        scale = D_IN**0.5 / text.norm(dim=1).mean()
        torch.manual_seed(SAMPLES_SEED)
        planted = torch.cat([self._sample(BATCH)[0] for _ in range(len(text) // BATCH)])
        of_text, of_planted = (each.var(dim=0).sum() for each in (scale * text, planted))
        factor = (SHARE / (1 - SHARE) * of_text / of_planted).sqrt()
        np.save(self.paths["text"], (scale * text).numpy())
        np.save(self.paths["held_out"], (scale * held_out).numpy())
        (self.folder / "factor.txt").write_text(repr(factor.item()))
        partial = self.folder / "planted.partial.npy"
        np.save(partial, (factor * planted).numpy())
        partial.rename(self.paths["planted"])

    @torch.no_grad()
    def _sample(self, n_samples: int) -> tuple[Tensor, Tensor]:
        feature_acts = self.generator.sample(n_samples)
        return self.features(feature_acts), feature_acts

    def batches(self, seed: int, batch_size: int) -> Iterator[Tensor]:
        """Tokens and planted features for ever, each in an order of its own for every pass.

        Args:
            seed: Seed of the orders.
            batch_size: Samples at a time.

        Yields:
            Samples, shape ``[batch_size, d_in]``.
        """
        text, planted = (
            np.load(self.paths[name], mmap_mode="r") for name in ("text", "planted")
        )
        random = np.random.default_rng(seed)
        while True:
            orders = [random.permutation(len(each)) for each in (text, planted)]
            for start in range(0, len(planted) - batch_size + 1, batch_size):
                here, there = (order[start : start + batch_size] for order in orders)
                yield torch.from_numpy(text[here] + planted[there])

    @torch.no_grad()
    def evaluate(self, sae: SAE[Any]) -> dict[str, Any]:
        """What became of the planted features, on text that no SAE has seen.

        Args:
            sae: The SAE, as anybody would load it.

        Returns:
            The measures by their names. Explained variance is that of the samples;
            `real_explained_variance` that of the same text with nothing planted;
            `absorption_of_edges` has a rate for each parent and child that are both found, and
            `None` for the others.
        """
        vectors = self.features.feature_vectors.to(self.device)
        text = torch.from_numpy(np.load(self.paths["held_out"])).to(self.device)
        torch.manual_seed(EVALUATION_SEED)
        sampled = [self._sample(len(batch)) for batch in text.split(BATCH)]
        planted, feature_acts = (
            torch.cat(each).to(self.device) for each in zip(*sampled, strict=True)
        )
        inputs = text + float((self.folder / "factor.txt").read_text()) * planted
        latents, cosines = latents_of_features(sae.W_dec, vectors)
        sums, acts_of_all = AbsorptionSums(self.edges), []
        for batch, present in zip(inputs.split(BATCH), feature_acts.split(BATCH), strict=True):
            acts = sae.encode(batch)
            sums.add(acts[:, latents], present)
            acts_of_all.append(acts.to_sparse())
        together = co_firing(acts_of_all)
        full, partial = sums.full(), sums.partial()
        found = found_parents(self.edges, sae.W_dec, vectors)
        edges = torch.tensor(self.edges, device=self.device)
        parents, children = edges.unbind(dim=1)
        # One latent for both is the parent's, and the child has none.
        child_found = (cosines[children] > FOUND) & (latents[children] != latents[parents])
        of_found = torch.where(found & child_found.cpu(), full, torch.nan)
        split = latents_per_feature(sae.W_dec, vectors, above=FOUND)
        return {
            "explained_variance": _explained_variance(sae, inputs),
            "real_explained_variance": _explained_variance(sae, text),
            "l0": together.times_fired.sum().item() / together.n_tokens,
            "dead_latents": 1 - together.live / len(sae.W_dec),
            "cosine_with_features": cosines.mean().item(),
            "features_found": (split > 0).double().mean().item(),
            "split": split[split > 0].double().mean().item(),
            "absorption": full[found].nanmean().item(),
            "absorption_of_all": full.nanmean().item(),
            "partial_absorption": partial[found].nanmean().item(),
            "absorption_by_found_children": of_found.nanmean().item(),
            "absorption_of_edges": [
                None if each.isnan() else round(each.item(), 6) for each in of_found
            ],
            "parents_found": found.double().mean().item(),
            "children_found": child_found.double().mean().item(),
            "composition": composition(sae.W_dec),
            "chance_composition": chance_composition(*sae.W_dec.shape),
            "highest_jaccard": together.mean,
            "pairs_above_0.5": together.pairs[0.5],
        }


def _explained_variance(sae: SAE[Any], inputs: Tensor) -> float:
    found = ExplainedVarianceCalculator()
    for batch in inputs.split(BATCH):
        found.add_batch(sae(batch), batch)
    return found.compute()


def _forest() -> list[HierarchyNode]:
    """The parents, which come first, and their children."""
    return [
        HierarchyNode(
            feature_index=parent,
            children=[
                HierarchyNode(feature_index=PARENTS + CHILDREN * parent + child)
                for child in range(CHILDREN)
            ],
            mutually_exclusive_children=True,
        )
        for parent in range(PARENTS)
    ]
