"""The two sources of inputs: a hierarchy with known features, and a real transformer."""

import math
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
from sae_lens import JumpReLUSAE
from sae_lens.synthetic import (
    ActivationGenerator,
    FeatureDictionary,
    HierarchyNode,
    hierarchy_modifier,
)
from torch import Tensor

from benchmarks.minilm import text_activations
from benchmarks.transfer.rules import Setting
from sae_lens_c2r.analysis import latents_of_features
from sae_lens_c2r.analysis.recovery import AbsorptionSums

N_CHILDREN, P_CHILD = 3, 0.25
ACTIVE_PARENTS = 1.92  # of a sample, in mean
FIXED_FEATURES = 128


class Hierarchy:
    """Features in trees, in superposition: a child fires only where its parent does.

    Their directions are random, so that a latent that has found its feature is as close to
    its nearest neighbour as chance makes it: the case that the rule is derived for. There
    are half as many as latents, for a wider SAE finds more; or always as many.
    """

    k, steps, learning_rate = ACTIVE_PARENTS * (1 + N_CHILDREN * P_CHILD), 500, 3e-3

    def __init__(self, setting: Setting, seed: int) -> None:
        torch.manual_seed(seed)
        fixed = setting.data == "fixed hierarchy"
        n_features = FIXED_FEATURES if fixed else setting.d_sae // 2
        parents = range(0, n_features, 1 + N_CHILDREN)
        self.edges = [(p, p + child) for p in parents for child in range(1, 1 + N_CHILDREN)]
        roots = [
            HierarchyNode(
                feature_index=parent,
                children=[HierarchyNode(feature_index=c) for p, c in self.edges if p == parent],
            )
            for parent in parents
        ]
        probabilities = torch.full((n_features,), P_CHILD)
        probabilities[list(parents)] = ACTIVE_PARENTS / len(parents)
        self.features = FeatureDictionary(
            n_features, setting.d_in, bias=False, initializer=None
        )
        self.generator = ActivationGenerator(
            n_features,
            probabilities,
            std_firing_magnitudes=0.15,
            modify_activations=hierarchy_modifier(roots),
        )
        self.setting = setting

    def batches(self) -> Iterator[Tensor]:
        """Fresh samples for ever."""
        while True:
            yield self.inputs(self.generator.sample(self.setting.batch_size))

    @torch.no_grad()
    def inputs(self, feature_acts: Tensor) -> Tensor:
        """What the SAE sees of true activations."""
        return self.setting.scale * self.features(feature_acts)

    @torch.no_grad()
    def evaluate(self, sae: JumpReLUSAE) -> dict[str, float]:
        """Explained variance, and absorption in mean over the edges."""
        torch.manual_seed(12345)
        feature_acts = self.generator.sample(16384)
        latents, cosines = latents_of_features(sae.W_dec, self.features.feature_vectors)
        inputs = self.inputs(feature_acts)
        latent_acts = sae.encode(inputs)
        absorption = AbsorptionSums(self.edges)
        absorption.add(latent_acts[:, latents], feature_acts)
        return {
            "explained_variance": explained_variance(inputs, sae.decode(latent_acts)),
            "absorption": absorption.full().mean().item(),
            "mean_max_cosine_with_features": cosines.mean().item(),
        }


MINILM_TRAINING_TOKENS = 200_000


class MiniLM:
    """The demo's activations, collected once; fewer dimensions are their principal ones."""

    k, learning_rate = 32.0, 1e-3

    def __init__(self, setting: Setting, seed: int) -> None:
        self.training, self.held_out = (
            setting.scale * activations for activations in _minilm_activations(setting.d_in)
        )
        self.setting, self.seed = setting, seed
        self.steps = math.ceil(MINILM_TRAINING_TOKENS / setting.batch_size)

    def batches(self) -> Iterator[Tensor]:
        """Shuffled tokens, again and again."""
        generator = torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.training), generator=generator)
            for batch in order.split(self.setting.batch_size)[:-1]:
                yield self.training[batch]

    @torch.no_grad()
    def evaluate(self, sae: JumpReLUSAE) -> dict[str, float]:
        """Explained variance of held-out tokens."""
        return {"explained_variance": explained_variance(self.held_out, sae(self.held_out))}


@cache
def _minilm_activations(d_in: int) -> tuple[Tensor, Tensor]:
    training, held_out = torch.load(ACTIVATIONS, weights_only=True)
    if d_in == training.shape[1]:
        return training, held_out
    _, axes = torch.linalg.eigh(training.T.cov())  # by rising variance
    return training @ axes[:, -d_in:], held_out @ axes[:, -d_in:]


ACTIVATIONS = Path("benchmarks/results/transfer/minilm_activations.pt")


def collect_minilm_activations() -> None:
    """Run the transformer over the demo's text, unless that was done before."""
    if not ACTIVATIONS.exists():
        ACTIVATIONS.parent.mkdir(parents=True, exist_ok=True)
        torch.save(text_activations(MINILM_TRAINING_TOKENS, sys.maxsize), ACTIVATIONS)


def explained_variance(inputs: Tensor, reconstruction: Tensor) -> float:
    """One less the residual's share of the variance."""
    residual = (inputs - reconstruction).square().sum()
    return 1 - (residual / (inputs - inputs.mean(dim=0)).square().sum()).item()
