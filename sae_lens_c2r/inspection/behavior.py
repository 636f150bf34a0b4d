"""What an SAE does on text."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from sae_lens import SAE, TrainingSAE
from sae_lens.evals import ExplainedVarianceCalculator
from torch import Tensor

from sae_lens_c2r.analysis import AbsorptionPairs, CoFiring, absorption_pairs, co_firing
from sae_lens_c2r.inspection.activations import TextActivations, encode
from sae_lens_c2r.inspection.contexts import Pair, redundant_pairs_in_context

PAIRS_SHOWN = 8


@dataclass(frozen=True)
class Reconstruction:
    """How well an SAE reconstructs a text's activations, and with how many latents.

    Args:
        explained_variance: Share of the activations' variance that is reconstructed, as
            SAELens computes it.
        co_firing: How much the latents fire together.
    """

    explained_variance: float
    co_firing: CoFiring

    @property
    def n_tokens(self) -> int:
        """Tokens of the text, without special ones."""
        return self.co_firing.n_tokens

    @property
    def times_fired(self) -> Int[Tensor, " d_sae"]:
        """On how many tokens each latent fires."""
        return self.co_firing.times_fired

    @property
    def l0(self) -> float:
        """Latents that fire, on average over the tokens."""
        return self.times_fired.sum().item() / self.n_tokens

    @property
    def dead(self) -> int:
        """Latents that fire on no token."""
        return int((self.times_fired == 0).sum())

    @property
    def frequencies(self) -> Float[Tensor, " d_sae"]:
        """Share of the tokens on which each latent fires."""
        return self.times_fired / self.n_tokens


@dataclass(frozen=True)
class Behavior(Reconstruction):
    """What was found of an SAE on text.

    Args:
        pairs: The most redundant pairs, in context.
        absorption: What the paper's Eq. (13) compares.
    """

    pairs: list[Pair]
    absorption: AbsorptionPairs


@torch.no_grad()
def reconstruct(sae: SAE[Any] | TrainingSAE[Any], text: TextActivations) -> Reconstruction:
    """Measure how an SAE reconstructs the activations on a text."""
    explained_variance = ExplainedVarianceCalculator()

    def batches() -> Iterator[Tensor]:
        for inputs, acts in encode(sae, text):
            explained_variance.add_batch(sae.decode(acts), inputs)
            yield acts

    together = co_firing(batches())
    return Reconstruction(explained_variance.compute(), together)


@torch.no_grad()
def observe(
    sae: SAE[Any] | TrainingSAE[Any], text: TextActivations, tokenizer: Any
) -> Behavior:
    """Measure an SAE on text.

    Args:
        sae: The SAE.
        text: What its model does on the text.
        tokenizer: The model's tokenizer.

    Returns:
        What was found.
    """
    found = reconstruct(sae, text)
    return Behavior(
        **vars(found),
        pairs=redundant_pairs_in_context(
            sae, text, tokenizer, times_fired=found.times_fired, most=PAIRS_SHOWN
        ),
        absorption=absorption_pairs(sae.W_dec, (acts for _, acts in encode(sae, text))),
    )
