"""Latents in context: the tokens on which they fire most, and the most redundant pairs."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from sae_lens import SAE, TrainingSAE
from torch import Tensor

from sae_lens_c2r.inspection.activations import TextActivations, encode
from sae_lens_c2r.penalties import nearest_neighbors
from sae_lens_c2r.penalties.cosines import pair_cosines
from sae_lens_c2r.penalties.precision import unit_rows

LEAST_COSINE = 0.3  # at the least alike, to be called a pair
TOP_TOKENS = 6
_TOKENS_AROUND = 6


@dataclass(frozen=True)
class TokenInContext:
    """A token on which a latent fires, and its surroundings."""

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
class Pair:
    """Two latents that are nearly the same direction."""

    cosine: float
    latents: tuple[Latent, Latent]
    times_fired_together: int

    @property
    def jaccard(self) -> float:
        """Of the tokens on which either fires, the share on which both do."""
        either = sum(latent.times_fired for latent in self.latents) - self.times_fired_together
        return self.times_fired_together / max(either, 1)


@torch.no_grad()
def redundant_pairs_in_context(
    sae: SAE[Any] | TrainingSAE[Any],
    text: TextActivations,
    tokenizer: Any,
    *,
    times_fired: Int[Tensor, " d_sae"],
    most: int,
) -> list[Pair]:
    """The most alike pairs by falling cosine, with the tokens on which their latents fire."""
    pairs = most_alike(sae.W_dec, times_fired, most)
    columns = Columns(sae, text, tokenizer, pairs.flatten())
    unit = unit_rows(sae.W_dec)
    return [
        Pair(
            cosine=(unit[pair[0]] @ unit[pair[1]]).item(),
            latents=(columns.latent(first), columns.latent(first + 1)),
            times_fired_together=columns.times_fired_together(first, first + 1),
        )
        for first, pair in zip(range(0, 2 * len(pairs), 2), pairs.tolist(), strict=True)
    ]


def most_alike(
    W_dec: Float[Tensor, "d_sae d_in"], times_fired: Int[Tensor, " d_sae"], most: int
) -> Int[Tensor, "pairs 2"]:
    """The most alike pairs of latents that fire, no latent in two of them."""
    alive = times_fired >= TOP_TOKENS
    neighbors = nearest_neighbors(W_dec, chunk_size=None)
    cosines = pair_cosines(W_dec, neighbors)
    shown: list[list[int]] = []
    seen: set[int] = set()
    for latent in cosines.argsort(descending=True).tolist():
        pair = [latent, int(neighbors[latent])]
        if cosines[latent] < LEAST_COSINE or len(shown) == most:
            break
        if seen.isdisjoint(pair) and all(alive[pair]):
            shown.append(sorted(pair))
            seen.update(pair)
    return torch.tensor(shown, dtype=torch.long).view(-1, 2)


class Columns:
    """The activations of a few latents on every token.

    Args:
        sae: The SAE.
        text: What its model does on a text.
        tokenizer: The model's tokenizer.
        latents: The latents, one a column.
    """

    def __init__(
        self,
        sae: SAE[Any] | TrainingSAE[Any],
        text: TextActivations,
        tokenizer: Any,
        latents: Int[Tensor, " n"],
    ) -> None:
        self.latents = latents.tolist()
        self.text = text
        self.tokenizer = tokenizer
        self.acts = torch.cat([acts[:, latents].cpu() for _, acts in encode(sae, text)])

    def times_fired_together(self, left: int, right: int) -> int:
        """On how many tokens the latents of two columns both fire."""
        return int(((self.acts[:, left] != 0) & (self.acts[:, right] != 0)).sum())

    def latent(self, column: int) -> Latent:
        """The latent of a column, with the tokens of its highest activations."""
        acts = self.acts[:, column]
        return Latent(
            index=self.latents[column],
            times_fired=int((acts != 0).sum()),
            top_tokens=[
                self._in_context(token, acts[token].item()) for token in self._top(acts)
            ],
        )

    def _top(self, acts: Float[Tensor, " tokens"]) -> list[int]:
        """The tokens of the highest activations, one of each row: a text may repeat itself."""
        tokens = acts.abs().argsort(descending=True)[: int((acts != 0).sum())].tolist()
        first_of_row: dict[int, int] = {}
        for token in tokens:
            first_of_row.setdefault(int(self.text.places[token, 0]), token)
        return list(first_of_row.values())[:TOP_TOKENS]

    def _in_context(self, token: int, activation: float) -> TokenInContext:
        row, column = self.text.places[token].tolist()
        ids = self.text.rows[row]
        pieces = (
            ids[max(0, column - _TOKENS_AROUND) : column],
            ids[[column]],
            ids[column + 1 : column + 1 + _TOKENS_AROUND],
        )
        before, at, after = (
            self.tokenizer.decode(piece, skip_special_tokens=True) for piece in pieces
        )
        return TokenInContext(before, at, after, activation)
