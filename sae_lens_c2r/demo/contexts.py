"""The most redundant pairs of one SAE, in context, beside their counterparts in another."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from sae_lens import SAE
from torch import Tensor

from sae_lens_c2r.analysis import redundant_pairs
from sae_lens_c2r.demo.evaluation import HeldOut, encode, times_fired
from sae_lens_c2r.penalties._precision import unit_rows

_LEAST_COSINE = 0.3  # at the least alike, to be called a pair
_TOP_TOKENS = 6
_TOKENS_AROUND = 6


@dataclass(frozen=True)
class TokenInContext:
    """A held-out token on which a latent fires, and its surroundings."""

    before: str
    token: str
    after: str
    activation: float


@dataclass(frozen=True)
class Latent:
    """A latent, as the report shows it."""

    index: int
    times_fired: int
    top_tokens: list[TokenInContext]


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
    plain: SAE[Any], regularized: SAE[Any], held_out: HeldOut, tokenizer: Any, *, most: int
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
    pairs = _most_alike(plain, held_out, most)
    plain_rows, regularized_rows = unit_rows(plain.W_dec), unit_rows(regularized.W_dec)
    cosines, nearest = (plain_rows[pairs.flatten()] @ regularized_rows.T).max(dim=1)
    shown = _Columns(plain, held_out, tokenizer, pairs.flatten())
    counterparts = _Columns(regularized, held_out, tokenizer, nearest)

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


def _most_alike(sae: SAE[Any], held_out: HeldOut, most: int) -> Int[Tensor, "pairs 2"]:
    alive = times_fired(sae, held_out) >= _TOP_TOKENS
    shown: list[list[int]] = []
    seen: set[int] = set()
    for pair in redundant_pairs(sae.W_dec, above=_LEAST_COSINE).latents.tolist():
        if len(shown) < most and seen.isdisjoint(pair) and all(alive[pair]):
            shown.append(pair)
            seen.update(pair)
    return torch.tensor(shown, dtype=torch.long).view(-1, 2)


class _Columns:
    """The activations of a few latents on every held-out token."""

    def __init__(
        self, sae: SAE[Any], held_out: HeldOut, tokenizer: Any, latents: Int[Tensor, " n"]
    ) -> None:
        self.latents = latents.tolist()
        self.held_out = held_out
        self.tokenizer = tokenizer
        self.acts = torch.cat([acts[:, latents].cpu() for _, acts in encode(sae, held_out)])

    def times_fired_together(self, left: int, right: int) -> int:
        return int(((self.acts[:, left] > 0) & (self.acts[:, right] > 0)).sum())

    def latent(self, column: int) -> Latent:
        acts = self.acts[:, column]
        return Latent(
            index=self.latents[column],
            times_fired=int((acts > 0).sum()),
            top_tokens=[
                self._in_context(token, acts[token].item()) for token in self._top(acts)
            ],
        )

    def _top(self, acts: Float[Tensor, " tokens"]) -> list[int]:
        """The tokens of the highest activations, one of each row: a text may repeat itself."""
        tokens = acts.argsort(descending=True)[: int((acts > 0).sum())].tolist()
        first_of_row: dict[int, int] = {}
        for token in tokens:
            first_of_row.setdefault(int(self.held_out.places[token, 0]), token)
        return list(first_of_row.values())[:_TOP_TOKENS]

    def _in_context(self, token: int, activation: float) -> TokenInContext:
        row, column = self.held_out.places[token].tolist()
        ids = self.held_out.rows[row]
        before = ids[max(1, column - _TOKENS_AROUND) : column]
        after = ids[column + 1 : min(len(ids) - 1, column + 1 + _TOKENS_AROUND)]
        before, at, after = (self.tokenizer.decode(i) for i in (before, ids[[column]], after))
        return TokenInContext(before, at, after, activation)
