"""What an SAE does on text."""

from dataclasses import dataclass
from typing import Any

import torch
from sae_lens import SAE, TrainingSAE
from sae_lens.evals import ExplainedVarianceCalculator
from torch import Tensor

from sae_lens_c2r.analysis import AbsorptionPairs, absorption_pairs
from sae_lens_c2r.inspection.contexts import Pair, redundant_pairs_in_context
from sae_lens_c2r.inspection.text import TextActivations, encode

PAIRS_SHOWN = 8


@dataclass(frozen=True)
class Behavior:
    """What was found of an SAE on text.

    Args:
        n_tokens: Tokens of the text, without special ones.
        explained_variance: Share of the activations' variance that is reconstructed, as
            SAELens computes it.
        l0: Latents that fire, on average over the tokens.
        frequencies: Share of the tokens on which each latent fires.
        pairs: The most redundant pairs, in context.
        absorption: What the paper's Eq. (13) compares.
    """

    n_tokens: int
    explained_variance: float
    l0: float
    frequencies: Tensor
    pairs: list[Pair]
    absorption: AbsorptionPairs

    @property
    def dead(self) -> int:
        """Latents that fire on no token."""
        return int((self.frequencies == 0).sum())


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
    explained_variance = ExplainedVarianceCalculator()
    fired = torch.zeros(sae.cfg.d_sae, device=sae.device)
    for inputs, acts in encode(sae, text):
        explained_variance.add_batch(sae.decode(acts), inputs)
        fired += (acts != 0).sum(dim=0)
    n_tokens = len(text.activations)
    return Behavior(
        n_tokens=n_tokens,
        explained_variance=explained_variance.compute(),
        l0=fired.sum().item() / n_tokens,
        frequencies=fired.cpu() / n_tokens,
        pairs=redundant_pairs_in_context(sae, text, tokenizer, most=PAIRS_SHOWN),
        absorption=absorption_pairs(sae.W_dec, (acts for _, acts in encode(sae, text))),
    )
