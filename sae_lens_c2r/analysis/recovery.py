"""Measures of SAEs whose features are known: SAELens's, and absorption by parent and child."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from sae_lens import SAE
from sae_lens.synthetic import HierarchyNode, SyntheticModel, eval_sae_on_synthetic_data
from torch import Tensor

from sae_lens_c2r._support.checks import check_integer
from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.analysis.absorption import sums_in_float64
from sae_lens_c2r.analysis.cofiring import co_firing
from sae_lens_c2r.analysis.similarity import (
    chance_composition,
    composition,
    latents_of_features,
)

Edge = tuple[int, int]  # the features of a parent and of one of its children


@torch.no_grad()
def feature_recovery(
    sae: SAE[Any], model: SyntheticModel, *, samples: int = 65_536, batch_size: int = 4096
) -> dict[str, float]:
    """The measures of an SAE of known features.

    Args:
        sae: The SAE, as anybody would load it.
        model: Where the features are known. It draws from torch's random state.
        samples: Samples to measure it on.
        batch_size: Samples at a time.

    Returns:
        The measures by their names; those of absorption if the features have a hierarchy. One
        that the samples do not hold is NaN.
    """
    check_integer("samples", samples, minimum=1)
    check_integer("batch_size", batch_size, minimum=1)
    if sae.dtype != torch.float32:  # SAELens multiplies its rows with the features' as they are
        sae = copy.deepcopy(sae).to(torch.float32)
    found = eval_sae_on_synthetic_data(
        sae, model.feature_dict, model.activation_generator, samples, batch_size
    )
    sizes = (min(batch_size, samples - start) for start in range(0, samples, batch_size))
    together = co_firing(sae.encode(model.sample(size)) for size in sizes)
    measures = {
        "explained_variance": found.explained_variance,
        "l0": found.sae_l0,
        "true_l0": found.true_l0,
        "dead_latents": found.dead_latents / sae.cfg.d_sae,
        "mcc": found.mcc,
        "uniqueness": found.uniqueness,
        "precision": found.classification.precision,
        "recall": found.classification.recall,
        "f1": found.classification.f1_score,
        "composition": composition(sae.W_dec),
        "chance_composition": chance_composition(*sae.W_dec.shape),
        "highest_jaccard": together.mean,
        "pairs_above_0.5": together.pairs[0.5],
    }
    if model.hierarchy is None:
        return measures
    absorption = hierarchy_absorption(sae, model, samples=samples, batch_size=batch_size)
    return {
        **measures,
        "absorption": absorption.full[absorption.found].nanmean().item(),
        "absorption_of_all": absorption.full.nanmean().item(),
        "partial_absorption": absorption.partial[absorption.found].nanmean().item(),
        "parents_found": absorption.found.double().mean().item(),
    }


@dataclass(frozen=True)
class HierarchyAbsorption:
    """Absorption along the edges of a hierarchy.

    Args:
        edges: The pairs (parent, child) of features.
        full: How often the parent's latent is silent for the child: `AbsorptionSums.full`.
        partial: How much weaker it is beside the child: `AbsorptionSums.partial`.
        found: Whether the parent has a latent of its own: one that is the nearest to it, and
            to which no other feature is nearer. For other parents the rates say little.
    """

    edges: list[Edge]
    full: Float[Tensor, " edges"]
    partial: Float[Tensor, " edges"]
    found: Bool[Tensor, " edges"]


@torch.no_grad()
def hierarchy_absorption(
    sae: SAE[Any], model: SyntheticModel, *, samples: int = 65_536, batch_size: int = 4096
) -> HierarchyAbsorption:
    """Absorption by an SAE of known features, for every parent and child of their hierarchy.

    Args:
        sae: The SAE, of any architecture.
        model: Where the features are known. It draws from torch's random state.
        samples: Samples to measure it on.
        batch_size: Samples at a time.

    Returns:
        The absorption of each edge.

    Raises:
        UserError: If the model's features have no hierarchy, or another size than the SAE's
            inputs.
        ValueError: If `samples` or `batch_size` is below 1.
    """
    check_integer("samples", samples, minimum=1)
    check_integer("batch_size", batch_size, minimum=1)
    if model.hierarchy is None:
        raise UserError("model", "have a hierarchy of features", "none")
    edges = hierarchy_edges(model.hierarchy.roots)
    features = model.feature_dict.feature_vectors
    if (hidden_dim := features.shape[1]) != sae.cfg.d_in:
        raise UserError("sae.cfg.d_in", f"be {hidden_dim:,}", f"{sae.cfg.d_in:,}")
    latents, _ = latents_of_features(sae.W_dec, features)
    sums = AbsorptionSums(edges)
    for start in range(0, samples, batch_size):
        sae_in, feature_acts = model.sample_with_features(min(batch_size, samples - start))
        sums.add(sae.encode(sae_in).to_dense()[:, latents], feature_acts.to_dense())
    found = found_parents(edges, sae.W_dec, features)
    return HierarchyAbsorption(edges, sums.full(), sums.partial(), found)


def hierarchy_edges(roots: Sequence[HierarchyNode]) -> list[Edge]:
    """All pairs of parents and children that are features, in trees of any depth."""
    edges = []
    for node in roots:
        if (parent := node.feature_index) is not None:
            edges += [(parent, child) for child in _first_features(node.children)]
        edges += hierarchy_edges(node.children)
    return edges


def _first_features(nodes: Sequence[HierarchyNode]) -> list[int]:
    """The features of nodes; of one without a feature, those of its children, as in SAELens."""
    features = []
    for node in nodes:
        here = node.feature_index
        features += _first_features(node.children) if here is None else [here]
    return features


@torch.no_grad()
def found_parents(
    edges: Sequence[Edge],
    W_dec: Float[Tensor, "d_sae d_in"],
    feature_vectors: Float[Tensor, "features d_in"],
) -> Bool[Tensor, " edges"]:
    """Whether the latent nearest to each edge's parent is nearer to no other feature."""
    latents, _ = latents_of_features(W_dec, feature_vectors)
    features_of_latents, _ = latents_of_features(feature_vectors, W_dec)
    parents = torch.tensor([parent for parent, _ in edges], dtype=torch.long).to(latents.device)
    return (features_of_latents[latents[parents]] == parents).cpu()


class AbsorptionSums:
    """The sums over batches of samples that absorption is a ratio of.

    An absorbing child takes its parent's place, so that the parent's latent has a hole where
    the child is present, and nowhere else. Children imply their parents.
    """

    def __init__(self, edges: Sequence[Edge]) -> None:
        # On a CPU, whatever torch's default device is.
        pairs = torch.tensor(edges, dtype=torch.long, device="cpu").view(-1, 2)
        self._parents, self._children = pairs.T
        # Beside a child and alone: samples, those without the latent, sum of its gains.
        self._sums = torch.zeros(2, 3, len(edges), dtype=torch.float64, device="cpu")

    @torch.no_grad()
    def add(
        self,
        latent_acts: Float[Tensor, "samples features"],
        feature_acts: Float[Tensor, "samples features"],
    ) -> None:
        """Add activations of each feature's own latent, of either sign, and the true ones."""
        acts, truth = latent_acts[:, self._parents], feature_acts[:, self._parents]
        child = feature_acts[:, self._children] != 0
        children = torch.zeros_like(feature_acts, dtype=torch.int32)
        children.index_add_(1, self._parents.to(child.device), child.int())
        parent = truth != 0
        alone = parent & (children[:, self._parents] == 0)
        gain = torch.where(parent, acts / truth, 0.0)
        for sums, where in zip(self._sums, (child, alone), strict=True):
            values = torch.stack([where, where & (acts == 0), gain * where])
            sums += sums_in_float64(values, dim=1)

    def full(self) -> Float[Tensor, " edges"]:
        """Full absorption of each edge, from 0 to 1; NaN where there are no such samples."""
        # The share of the samples with the child in which the parent's latent does not fire,
        # less the share in which it does not fire on the parent alone.
        beside, alone = self._sums[:, 1] / self._sums[:, 0]
        return (beside - alone).clamp(min=0)

    def partial(self) -> Float[Tensor, " edges"]:
        """Partial absorption of each edge, from 0 to 1; NaN where there are no such samples."""
        # 1 - E[z / f | child] / E[z / f | alone], with z the activation of the parent's latent
        # and f the parent's true one: the share of a parent that its latent leaves to others
        # where a child is present. A latent that is silent on half of these samples counts as
        # much as one that is half as strong on all. NaN too where it is silent without them.
        beside, alone = self._sums[:, 2] / self._sums[:, 0]
        return torch.where(alone > 0, (1 - beside / alone).clamp(min=0), torch.nan)
