"""A language model's activations on a text, and what an SAE makes of them, batch by batch."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from sae_lens import SAE, TrainingSAE
from torch import Tensor

_TOKENS_PER_BATCH = 4096


@dataclass(frozen=True)
class TextActivations:
    """A model's activations on text, those of special tokens left out.

    Args:
        rows: The text, as the model read it.
        activations: Of each token that is not left out.
        places: Row and column of each of these in `rows`.
    """

    rows: Int[Tensor, "rows context"]
    activations: Float[Tensor, "tokens d_in"]
    places: Int[Tensor, "tokens 2"]


@torch.no_grad()
def encode(
    sae: SAE[Any] | TrainingSAE[Any], text: TextActivations
) -> Iterator[tuple[Float[Tensor, "tokens d_in"], Float[Tensor, "tokens d_sae"]]]:
    """Batches of inputs and of the latents' activations on them."""
    for batch in text.activations.split(_TOKENS_PER_BATCH):
        inputs = batch.to(sae.device, sae.dtype)
        acts = sae.encode(inputs)
        yield inputs, acts.to_dense() if acts.is_sparse else acts
