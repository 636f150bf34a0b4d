"""The most redundant pairs of one SAE beside their counterparts in another."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from sae_lens import SAE
from torch import Tensor

from sae_lens_c2r.inspection.contexts import Columns, Latent, most_alike
from sae_lens_c2r.inspection.text import TextActivations
from sae_lens_c2r.penalties.precision import unit_rows


@dataclass(frozen=True)
class Counterpart:
    """The latent of the other SAE whose decoder row is the nearest."""

    cosine: float
    latent: Latent


@dataclass(frozen=True)
class PairInContext:
    """Two latents that are nearly the same direction."""

    cosine: float
    latents: tuple[Latent, Latent]
    times_fired_together: int
    counterparts: tuple[Counterpart, Counterpart]
    counterpart_cosine: float


@torch.no_grad()
def pairs_in_context(
    plain: SAE[Any],
    regularized: SAE[Any],
    held_out: TextActivations,
    tokenizer: Any,
    *,
    most: int,
) -> list[PairInContext]:
    """The most alike pairs of one SAE, with the latents of the other that replace them.

    Args:
        plain: The SAE whose pairs are shown.
        regularized: The SAE in which their counterparts are looked up.
        held_out: The held-out activations.
        tokenizer: The transformer's tokenizer.
        most: Pairs at most.

    Returns:
        Pairs by falling cosine: no latent in two of them, none that hardly fires.
    """
    pairs = most_alike(plain, held_out, most)
    plain_rows, regularized_rows = unit_rows(plain.W_dec), unit_rows(regularized.W_dec)
    cosines, nearest = (plain_rows[pairs.flatten()] @ regularized_rows.T).max(dim=1)
    shown = Columns(plain, held_out, tokenizer, pairs.flatten())
    counterparts = Columns(regularized, held_out, tokenizer, nearest)

    def in_context(first: int) -> PairInContext:
        second = first + 1
        return PairInContext(
            cosine=_cosine(plain_rows, shown.latents[first], shown.latents[second]),
            latents=(shown.latent(first), shown.latent(second)),
            times_fired_together=shown.times_fired_together(first, second),
            counterparts=(
                Counterpart(cosines[first].item(), counterparts.latent(first)),
                Counterpart(cosines[second].item(), counterparts.latent(second)),
            ),
            counterpart_cosine=_cosine(
                regularized_rows, counterparts.latents[first], counterparts.latents[second]
            ),
        )

    return [in_context(first) for first in range(0, 2 * len(pairs), 2)]


def _cosine(unit: Float[Tensor, "d_sae d_in"], left: int, right: int) -> float:
    return (unit[left] @ unit[right]).item()
