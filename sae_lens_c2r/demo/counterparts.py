"""The most redundant pairs of one SAE beside their counterparts in another."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from sae_lens import SAE
from torch import Tensor

from sae_lens_c2r.demo.twins import Kind, kind_of, replacements
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
    """Two latents that are alike, their counterparts, and these as a pair; they may be one."""

    pair: Pair
    counterparts: tuple[Counterpart, Counterpart]
    in_place: Pair

    @property
    def kind(self) -> Kind:
        """What became of the two latents."""
        first, second = self.in_place.latents
        one = first.index == second.index
        return kind_of(one=one, cosine=self.in_place.cosine, jaccard=self.in_place.jaccard)


@torch.no_grad()
def with_counterparts(
    pairs: list[Pair],
    plain: SAE[Any],
    other: SAE[Any],
    text: TextActivations,
    tokenizer: Any,
    *,
    other_fires: Bool[Tensor, " d_sae"],
) -> list[PairWithCounterparts]:
    """The pairs of one SAE, with the latents of the other that replace theirs.

    Args:
        pairs: Pairs of latents that are alike.
        plain: Their SAE.
        other: The other one.
        text: What their model does on a text.
        tokenizer: The model's tokenizer.
        other_fires: Which latents of the other SAE fire there.

    Returns:
        The pairs in their order.
    """
    indices = [latent.index for pair in pairs for latent in pair.latents]
    latents = torch.tensor(indices, dtype=torch.long, device=plain.W_dec.device)
    cosines, nearest = replacements(plain, other, latents, other_fires=other_fires)
    other_rows = unit_rows(other.W_dec)
    columns = Columns(other, text, tokenizer, nearest)
    found = [
        Counterpart(cosine, columns.latent(column))
        for column, cosine in enumerate(cosines.tolist())
    ]
    in_place = [
        Pair(
            (other_rows[nearest[first]] @ other_rows[nearest[first + 1]]).item(),
            (found[first].latent, found[first + 1].latent),
            columns.times_fired_together(first, first + 1),
        )
        for first in range(0, len(found), 2)
    ]
    both = zip(found[::2], found[1::2], strict=True)
    return [PairWithCounterparts(*each) for each in zip(pairs, both, in_place, strict=True)]
