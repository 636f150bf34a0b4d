"""Hierarchies of known features, and what an SAE made of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from sae_lens import SAE
from sae_lens.synthetic import (
    HierarchyConfig,
    SyntheticActivationIterator,
    SyntheticModel,
    SyntheticModelConfig,
    ZipfianFiringProbabilityConfig,
    eval_sae_on_synthetic_data,
)
from scipy import stats
from torch import Tensor

from sae_lens_c2r.analysis import (
    absorption_pairs,
    chance_composition,
    composition,
    latents_of_features,
    latents_per_feature,
)
from sae_lens_c2r.analysis.recovery import AbsorptionSums, hierarchy_edges

CHILDREN = 3
EVALUATION_SAMPLES, BATCH = 32_768, 4096
FREQUENCY_GROUPS = 5


@dataclass(frozen=True)
class Regime:
    """A kind of world, and the width of the SAEs in it.

    Args:
        name: What it is called.
        n_features: True features: a quarter of them parents, with three children each.
        d_in: Dimension of the inputs. With fewer than features these are in superposition.
        d_sae: Latents.
        ks: Sparsities; first the one of the comparisons that have but one. About five of 256
            features are present at a time, and two of 64.
    """

    name: str
    n_features: int
    d_in: int
    d_sae: int
    ks: tuple[int, ...]


REGIMES = {
    regime.name: regime
    for regime in (
        Regime("more latents than features", 256, 64, 512, (6, 4, 8, 12)),
        Regime("fewer latents than features", 256, 64, 128, (6, 4, 8, 12)),
        Regime("hardly any superposition", 256, 192, 512, (6, 4, 8, 12)),
        Regime("a latent for each feature", 64, 96, 64, (2, 3, 4, 6)),
    )
}


class World:
    """Known features in trees, of unequal frequencies: a child fires with its parent only.

    Args:
        regime: Its kind.
        seed: Seed of the features, their frequencies and the samples.
    """

    def __init__(self, regime: Regime, seed: int) -> None:
        self.model = SyntheticModel(
            SyntheticModelConfig(
                num_features=regime.n_features,
                hidden_dim=regime.d_in,
                firing_probability=ZipfianFiringProbabilityConfig(
                    exponent=0.8, max_prob=0.3, min_prob=0.01
                ),
                hierarchy=HierarchyConfig(
                    total_root_nodes=regime.n_features // (1 + CHILDREN),
                    branching_factor=CHILDREN,
                    max_depth=1,
                    compensate_probabilities=True,
                ),
                std_firing_magnitudes=0.15,
                bias=False,
                seed=seed,
            )
        )
        assert self.model.hierarchy is not None
        self.edges = hierarchy_edges(self.model.hierarchy.roots)

    def samples(self, batch_size: int) -> SyntheticActivationIterator:
        """Fresh samples for ever."""
        return SyntheticActivationIterator(
            self.model.feature_dict, self.model.activation_generator, batch_size
        )

    @torch.no_grad()
    def evaluate(self, sae: SAE[Any]) -> dict[str, Any]:
        """What the paper measures, and what only known features can tell."""
        torch.manual_seed(12345)
        features = self.model.feature_dict
        found = eval_sae_on_synthetic_data(
            sae, features, self.model.activation_generator, EVALUATION_SAMPLES, BATCH
        )
        feature_acts = self.model.activation_generator(EVALUATION_SAMPLES)
        acts = sae.encode(features(feature_acts))
        latents, _ = latents_of_features(sae.W_dec, features.feature_vectors)
        own = acts[:, latents].clamp(min=0)
        absorption = AbsorptionSums(self.edges)
        absorption.add(own, feature_acts)
        full, partial = absorption.full(), absorption.partial()
        frequencies, rates = self._absorption_of_parents(feature_acts, full)
        split = latents_per_feature(sae.W_dec, features.feature_vectors)
        pairs = absorption_pairs(sae.W_dec, acts.split(BATCH))
        return {
            "explained_variance": found.explained_variance,
            "l0": found.sae_l0,
            "dead_latents": found.dead_latents / sae.cfg.d_sae,
            "mcc": found.mcc,
            "uniqueness": found.uniqueness,
            "precision": found.classification.precision,
            "recall": found.classification.recall,
            "f1": found.classification.f1_score,
            "composition": composition(sae.W_dec),
            "chance_composition": chance_composition(*sae.W_dec.shape),
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
            "median_A_over_B": (pairs.A / pairs.B).median().item()
            if len(pairs)
            else float("nan"),
        }

    def _absorption_of_parents(
        self, feature_acts: Tensor, rates: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Frequencies of the parents, rising, and each one's absorption by its children."""
        parents = torch.tensor([parent for parent, _ in self.edges])
        each = parents.unique()
        frequencies = feature_acts[:, each].bool().double().mean(dim=0)
        absorbed = torch.stack([rates[parents == parent].nanmean() for parent in each])
        order = frequencies.argsort()
        return frequencies[order], absorbed[order]


def _correlation(of: Callable[..., Any], frequencies: Tensor, rates: Tensor) -> float:
    known = ~rates.isnan()
    if known.sum() < 3 or rates[known].unique().numel() < 2:
        return float("nan")  # it is of nothing that varies
    return float(of(frequencies[known].numpy(), rates[known].numpy()).statistic)
