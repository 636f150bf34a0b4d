"""An SAE on text: batches of activations, latents in context, and pairs that are alike."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from sae_lens import SAE, TrainingSAE
from torch import Tensor

from sae_lens_c2r._support.errors import UserError, shortened
from sae_lens_c2r.penalties import nearest_neighbors
from sae_lens_c2r.penalties.cosines import pair_cosines, unit_rows

AnySAE = SAE[Any] | TrainingSAE[Any]
LEAST_COSINE = 0.3  # at the least alike, to be called a pair
PAIRS_SHOWN = 8
TOP_TOKENS = 6
_TOKENS_AROUND = 6
_TOKENS_PER_BATCH = 4096


@dataclass(frozen=True)
class TextActivations:
    """A model's activations on text, those of special tokens left out."""

    rows: Int[Tensor, "rows context"]  # the text, as the model read it
    activations: Float[Tensor, "tokens d_in"]
    places: Int[Tensor, "tokens 2"]  # row and column of each of these in `rows`
    tokenizer: Any
    text: str  # its name, as the model's
    model: str


def encode(
    sae: AnySAE, text: TextActivations
) -> Iterator[tuple[Float[Tensor, "tokens d_in"], Float[Tensor, "tokens d_sae"]]]:
    """Batches of inputs and of the latents' activations on them."""
    for batch in text.activations.split(_TOKENS_PER_BATCH):
        inputs = batch.to(sae.device, sae.dtype)
        with torch.no_grad():
            acts = sae.encode(inputs)
            acts = acts.to_dense() if acts.is_sparse else acts
        yield inputs, acts


@dataclass(frozen=True)
class TokenInContext:
    """A token on which a latent fires, and its surroundings."""

    before: str
    token: str
    after: str
    activation: float


@dataclass(frozen=True)
class Latent:
    """A latent on a text, with its activations where it fires."""

    index: int
    activations: Float[Tensor, " fires"]
    top_tokens: list[TokenInContext]

    @property
    def times_fired(self) -> int:
        """On how many tokens it fires."""
        return len(self.activations)


@dataclass(frozen=True)
class Pair:
    """Two latents, the cosine of their decoder rows, and how often both fire."""

    cosine: float
    latents: tuple[Latent, Latent]
    times_fired_together: int

    @property
    def jaccard(self) -> float:
        """Of the tokens on which either fires, the share on which both do."""
        either = sum(latent.times_fired for latent in self.latents) - self.times_fired_together
        return self.times_fired_together / max(either, 1)


def parse_latents(written: str) -> list[int]:
    """The numbers of latents, joined by commas like ``3,17``, each once; or a UserError."""
    parts = [part.strip() for part in written.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,18}", part) for part in parts):
        shown = shortened(written, 60)
        raise UserError(f"`latents` should be numbers of latents, like 3,17. Found {shown}.")
    return list(dict.fromkeys(map(int, parts)))


def check_latents(wanted: Sequence[int], d_sae: int) -> None:
    """Raise unless an SAE has these latents."""
    too_high = [number for number in wanted if number >= d_sae]
    if too_high:
        raise UserError(
            f"`latents` should be below {d_sae:,}, the latents that there are. Found "
            f"{', '.join(map(str, too_high))}."
        )


def latents_in_context(
    sae: AnySAE, text: TextActivations, latents: Sequence[int]
) -> list[Latent]:
    """Latents with the tokens on which they fire most, in the order that is asked for."""
    if not latents:
        return []
    columns = _Columns(sae, text, latents)
    return [columns.latent(column) for column in range(len(latents))]


@torch.no_grad()
def pairs_in_context(
    sae: AnySAE, text: TextActivations, pairs: Int[Tensor, "pairs 2"]
) -> list[Pair]:
    """Pairs of latents, in order, with the tokens on which they fire most."""
    columns = _Columns(sae, text, pairs.flatten().tolist())
    in_context = []
    for first, pair in zip(range(0, 2 * len(pairs), 2), pairs, strict=True):
        left, right = unit_rows(sae.W_dec[pair])
        acts = columns.acts[:, first : first + 2] != 0
        latents = columns.latent(first), columns.latent(first + 1)
        in_context.append(Pair((left @ right).item(), latents, int(acts.all(dim=1).sum())))
    return in_context


@torch.no_grad()
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


class _Columns:
    """The activations of a few latents on every token, a column for each."""

    def __init__(self, sae: AnySAE, text: TextActivations, latents: Sequence[int]) -> None:
        self.latents = latents
        self.text = text
        chosen = torch.tensor(latents, dtype=torch.long)
        self.acts = torch.cat([acts[:, chosen].cpu() for _, acts in encode(sae, text)])

    def latent(self, column: int) -> Latent:
        """The latent of a column, with the tokens of its highest activations."""
        acts = self.acts[:, column]
        top = [self._in_context(token, acts[token].item()) for token in self._top(acts)]
        return Latent(self.latents[column], acts[acts != 0].float(), top)

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
        decode = self.text.tokenizer.decode
        before, at, after = (decode(piece, skip_special_tokens=True) for piece in pieces)
        return TokenInContext(before, at, after, activation)
