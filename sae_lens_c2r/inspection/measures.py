"""What the weights of an SAE say, without any data."""

from dataclasses import dataclass
from typing import Any

import torch
from sae_lens import SAE, TrainingSAE
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.analysis import chance_composition, count_pairs, max_cosines

THRESHOLDS = (0.9, 0.7)
INTERVALS = 50  # of a distribution of maximum cosine


@dataclass(frozen=True)
class Inspection:
    """What can be told of an SAE from its weights and its config.

    Args:
        name: What it is called.
        architecture: SAELens's name of its form.
        trained_as: SAELens's name of what it was trained as, where that is known.
        d_in: Dimension of the inputs.
        d_sae: Latents.
        max_cosines: Every latent's highest cosine with another one's decoder row.
        composition: Their mean, the paper's feature composition.
        chance_composition: What that is for random directions.
        pairs: Pairs of latents with a cosine above each of `THRESHOLDS`.
        decoder_norms: Lengths of the decoder's rows.
        metadata: What SAELens wrote of its training: model, hook, data.
    """

    name: str
    architecture: str
    trained_as: str | None
    d_in: int
    d_sae: int
    max_cosines: Tensor
    composition: float
    chance_composition: float
    pairs: list[int]
    decoder_norms: Tensor
    metadata: dict[str, Any]

    @property
    def cosine_counts(self) -> list[int]:
        """Latents by their highest cosine: in equal intervals from 0 to 1, the rest below."""
        cosines = self.max_cosines.float().clamp(0, 1)
        return [int(count) for count in torch.histc(cosines, bins=INTERVALS, min=0, max=1)]

    @property
    def zero_rows(self) -> int:
        """Latents whose decoder row is 0: they say nothing."""
        return int((self.decoder_norms == 0).sum())


@torch.no_grad()
def inspect_sae(sae: SAE[Any] | TrainingSAE[Any], name: str) -> Inspection:
    """Measure an SAE's decoder.

    Args:
        sae: Any SAE of SAELens's.
        name: What to call it.

    Returns:
        What was found.

    Raises:
        UserError: If a weight is not finite, or the decoder has fewer than 2 rows or columns.
    """
    for weight, tensor in sae.state_dict().items():
        if not tensor.isfinite().all():
            raise UserError(f"{name}: `{weight}` should be finite. Found NaN or infinity.")
    W_dec = sae.W_dec.detach()
    if W_dec.ndim != 2 or min(W_dec.shape) < 2:
        should = "be a matrix of at least 2 latents and dimensions"
        raise UserError(f"{name}: `W_dec` should {should}. Found {tuple(W_dec.shape)}.")
    cosines = max_cosines(W_dec)
    metadata = dict(sae.cfg.metadata.to_dict())
    return Inspection(
        name=name,
        architecture=sae.cfg.architecture(),
        trained_as=metadata.get("training_architecture"),
        d_in=sae.cfg.d_in,
        d_sae=sae.cfg.d_sae,
        max_cosines=cosines.cpu(),
        composition=cosines.mean().item(),
        chance_composition=chance_composition(*W_dec.shape),
        pairs=count_pairs(W_dec, above=THRESHOLDS),
        decoder_norms=W_dec.norm(dim=-1).cpu(),
        metadata=metadata,
    )
