"""An SAE on text: batches of activations, latents in context, and pairs that are alike."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from sae_lens import SAE, TrainingSAE
from torch import Tensor
from torch.nn.functional import cosine_similarity
from tqdm import tqdm

from sae_lens_c2r.analysis import CoFiring
from sae_lens_c2r.penalties import nearest_neighbors
from sae_lens_c2r.penalties.cosines import pair_cosines

AnySAE = SAE[Any] | TrainingSAE[Any]
LEAST_COSINE, LEAST_JACCARD = 0.3, 0.5  # of a pair that is shown
PAIRS_SHOWN = 8
TOP_TOKENS = 6
_TOKENS_AROUND = 6
_TOKENS_PER_BATCH, _ACTS_PER_BATCH = 1 << 12, 1 << 28  # at most; of these in float32, 1 GiB


@dataclass(frozen=True)
class TextActivations:
    """A model's activations on text, of the tokens that an SAE is trained on."""

    rows: Int[Tensor, "rows context"]  # the text, as the model read it
    activations: Float[Tensor, "tokens d_in"]
    places: Int[Tensor, "tokens 2"]  # row and column of each of these in `rows`
    tokenizer: Any
    text: str  # its name, as the model's
    model: str
    left_out: Mapping[str, int] = field(default_factory=dict)  # tokens of the rows, by why


def encode(
    sae: AnySAE, text: TextActivations
) -> Iterator[tuple[Float[Tensor, "tokens d_in"], Float[Tensor, "tokens d_sae"]]]:
    """Batches of inputs and of the latents' activations on them."""
    # Of attention's outputs, the heads are joined already.
    sae.turn_off_forward_pass_hook_z_reshaping()  # type: ignore[no-untyped-call]
    n_tokens = max(1, min(_TOKENS_PER_BATCH, _ACTS_PER_BATCH // sae.cfg.d_sae))
    for batch in tqdm(
        text.activations.split(n_tokens), "Encoding tokens", leave=False, delay=5
    ):
        inputs = batch.to(sae.device, sae.dtype)
        with torch.no_grad():
            acts = sae.encode(inputs).to_dense()
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
    """A latent on a text: the tokens on which it fires, and those where it does so most."""

    index: int
    tokens: Int[Tensor, " fires"]
    top_tokens: list[TokenInContext]


@dataclass(frozen=True)
class Pair:
    """Two latents, and the cosine of their decoder rows."""

    cosine: float
    latents: tuple[Latent, Latent]

    @property
    def times_fired_together(self) -> int:
        """Tokens on which both fire."""
        left, right = self.latents
        return int(torch.isin(left.tokens, right.tokens).sum())

    @property
    def jaccard(self) -> float:
        """Of the tokens on which either fires, the share on which both do."""
        either = sum(len(latent.tokens) for latent in self.latents) - self.times_fired_together
        return self.times_fired_together / max(either, 1)


@torch.no_grad()
def latents_in_context(
    sae: AnySAE, text: TextActivations, latents: Sequence[int]
) -> list[Latent]:
    """Latents with the tokens on which they fire most, in the order that is asked for."""
    if not latents:
        return []
    chosen = torch.tensor(latents, dtype=torch.long)
    columns = torch.cat([acts[:, chosen].cpu() for _, acts in encode(sae, text)]).T
    return [_in_context(text, *each) for each in zip(latents, columns, strict=True)]


def _in_context(text: TextActivations, index: int, acts: Float[Tensor, " tokens"]) -> Latent:
    tokens = acts.nonzero()[:, 0]
    of_rows: dict[int, int] = {}  # one token of each: a text may repeat itself
    for token in tokens[acts[tokens].abs().argsort(descending=True)].tolist():
        of_rows.setdefault(int(text.places[token, 0]), token)
    shown = []
    for token in list(of_rows.values())[:TOP_TOKENS]:
        row, at = text.places[token].tolist()
        start, end = _of_whole_characters(text, row, at)
        places = (max(0, start - _TOKENS_AROUND), start, end, end + _TOKENS_AROUND)
        before, this, after = (
            # The token itself may be a special one.
            text.tokenizer.decode(text.rows[row, left:right], skip_special_tokens=left != start)
            for left, right in pairwise(places)
        )
        shown.append(TokenInContext(before, this, after, acts[token].item()))
    return Latent(index, tokens, shown)


def _of_whole_characters(text: TextActivations, row: int, at: int) -> tuple[int, int]:
    """The fewest tokens around one that are whole characters, which have up to four bytes."""
    spans = [(at - n, at + 1 + more - n) for more in range(4) for n in range(min(more, at) + 1)]
    decoded = ((span, text.tokenizer.decode(text.rows[row, slice(*span)])) for span in spans)
    return next((span for span, words in decoded if "\ufffd" not in words), (at, at + 1))


@torch.no_grad()
def pairs_in_context(
    sae: AnySAE, text: TextActivations, pairs: Int[Tensor, "pairs 2"]
) -> list[Pair]:
    """Pairs of latents, in order, with the tokens on which they fire most."""
    latents = iter(latents_in_context(sae, text, pairs.flatten().tolist()))
    left, right = (sae.W_dec[column].float() for column in pairs.T)
    cosines = cosine_similarity(left, right).tolist()
    return [Pair(cosine, (next(latents), next(latents))) for cosine in cosines]


@torch.no_grad()
def most_alike(
    W_dec: Float[Tensor, "d_sae d_in"], times_fired: Int[Tensor, " d_sae"], most: int
) -> Int[Tensor, "pairs 2"]:
    """The most alike pairs of latents that fire, no latent in two of them."""
    alive = (times_fired >= TOP_TOKENS).nonzero().squeeze(1)
    if len(alive) < 2:
        return torch.empty(0, 2, dtype=torch.long)
    rows = W_dec[alive.to(W_dec.device)]
    neighbors = nearest_neighbors(rows, chunk_size=None)
    return alive[_highest(pair_cosines(rows, neighbors), neighbors, LEAST_COSINE, most)]


def most_together(found: CoFiring, most: int) -> Int[Tensor, "pairs 2"]:
    """The pairs of latents that fire together most, no latent in two of them."""
    often = found.times_fired >= TOP_TOKENS
    jaccards = found.highest * (often & often[found.partners])
    return _highest(jaccards, found.partners, LEAST_JACCARD, most)


def _highest(
    scores: Float[Tensor, " latents"], others: Int[Tensor, " latents"], least: float, most: int
) -> Int[Tensor, "pairs 2"]:
    """Latents with their others, the highest score first, no latent in two pairs."""
    pairs: list[list[int]] = []
    seen: set[int] = set()
    for latent in scores.argsort(descending=True).tolist():
        if scores[latent] < least or len(pairs) == most:
            break
        pair = sorted([latent, int(others[latent])])
        if seen.isdisjoint(pair):
            pairs.append(pair)
            seen.update(pair)
    return torch.tensor(pairs, dtype=torch.long).view(-1, 2)
