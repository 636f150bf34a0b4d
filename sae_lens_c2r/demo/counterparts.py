"""The most redundant pairs of one SAE beside their counterparts in another."""

from dataclasses import dataclass
from typing import Any

import torch
from sae_lens import SAE

from sae_lens_c2r.inspection.activations import TextActivations
from sae_lens_c2r.inspection.contexts import Columns, Latent, Pair
from sae_lens_c2r.penalties.precision import unit_rows


@dataclass(frozen=True)
class Counterpart:
    """The latent of another SAE whose decoder row is the nearest, with their cosine."""

    cosine: float
    latent: Latent


@dataclass(frozen=True)
class PairWithCounterparts:
    """Two latents that are alike, their counterparts, and how alike these are."""

    pair: Pair
    counterparts: tuple[Counterpart, Counterpart]
    cosine: float


@torch.no_grad()
def with_counterparts(
    pairs: list[Pair], plain: SAE[Any], other: SAE[Any], text: TextActivations, tokenizer: Any
) -> list[PairWithCounterparts]:
    """The pairs of one SAE, with the latents of the other that replace theirs."""
    latents = [latent.index for pair in pairs for latent in pair.latents]
    rows, other_rows = unit_rows(plain.W_dec), unit_rows(other.W_dec)
    cosines, nearest = (rows[latents] @ other_rows.T).max(dim=1)
    columns = Columns(other, text, tokenizer, nearest)
    found = [
        Counterpart(cosine, columns.latent(column))
        for column, cosine in enumerate(cosines.tolist())
    ]
    return [
        PairWithCounterparts(
            pair,
            (found[first], found[first + 1]),
            (other_rows[nearest[first]] @ other_rows[nearest[first + 1]]).item(),
        )
        for first, pair in zip(range(0, len(found), 2), pairs, strict=True)
    ]
