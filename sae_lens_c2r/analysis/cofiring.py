"""Co-firing: latents that fire on the same tokens, which composition cannot see."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import sparse
from scipy.special import betainc, gammaln
from torch import Tensor

from sae_lens_c2r._support import checks
from sae_lens_c2r.penalties.cosines import slices_of_tiles

JACCARDS = (0.5, 0.7, 0.9)
_LEVELS = 20  # of firing rates that the chance level tells apart, in a factor of e
_STEPS = 128  # of the integral over the Jaccard
_EXACT_UP_TO = 4096  # tokens, beyond which exact tables would be long
_PAIRS_AT_ONCE = 2**22  # in a block of latents
_LEAST_BLOCKS = 8  # as half of the pairs within a block are counted twice


@dataclass(frozen=True)
class CoFiring:
    """How much the latents of an SAE fire together.

    Args:
        n_tokens: Tokens of the text.
        times_fired: On how many of them each latent fires.
        highest: Each latent's highest Jaccard with another one; 0 where it never fires.
        partners: The other one, or one of several; the latent itself where there is none.
        pairs: Pairs of latents above each threshold, by these.
        chance: What `mean` is if latents fire independently, see `chance_co_firing`.
    """

    n_tokens: int
    times_fired: Int[Tensor, " d_sae"]
    highest: Float[Tensor, " d_sae"]
    partners: Int[Tensor, " d_sae"]
    pairs: dict[float, int]
    chance: float

    @property
    def live(self) -> int:
        """Latents that fire."""
        return int((self.times_fired > 0).sum())

    @property
    def mean(self) -> float:
        """The mean of `highest` over the latents that fire; 0 if there is none."""
        return self.highest.sum().item() / max(self.live, 1)

    def summary(self) -> dict[str, float]:
        """The numbers that are shown of it."""
        pairs = {f"co_firing_pairs_above_{above}": count for above, count in self.pairs.items()}
        return {"co_firing": self.mean, "co_firing_chance": self.chance, **pairs}


@torch.no_grad()
def co_firing(batches: Iterable[Tensor], *, above: Sequence[float] = JACCARDS) -> CoFiring:
    r"""Measure how much latents fire together: the highest Jaccard of each with another.

    .. math::
        J_{ij} = \frac{|T_i \cap T_j|}{|T_i \cup T_j|}, \qquad
        \mathrm{highest}_i = \max_{j \neq i} J_{ij}

    with :math:`T_i` the tokens on which latent i fires. Two latents that share one concept
    fire on the same tokens, whichever way their decoder rows point: composition can fall
    while this stays. Latents that never fire are in no pair.

    Exact. With N tokens and s firings on each it counts :math:`N s^2 / 2` pairs of firings, by
    products of sparse matrices, a block of latents at a time. It keeps 8 bytes for each
    firing, beside one batch.

    Args:
        batches: The latents' activations on text, each of shape ``[tokens, d_sae]``, dense or
            sparse COO, on any device. What is not 0 fires. They are gone through once.
        above: Thresholds, from 0 to below 1, of the pairs that are counted.

    Returns:
        The co-firing, on the CPU.

    Raises:
        TypeError: If a batch is not a floating-point tensor.
        ValueError: If there is no batch, or one is empty, holds a NaN or is not of
            that shape.
    """
    for bound in above:
        checks.check_number("above", bound)
    fires, times_fired = _firings(batches)
    d_sae, n_tokens = fires.shape
    highest = torch.zeros(d_sae, dtype=torch.float64, device="cpu")
    partners = torch.arange(d_sae, device="cpu")
    pairs = dict.fromkeys(above, 0)
    for left, right, together in _firing_together(fires):
        jaccards = together.double() / (times_fired[left] + times_fired[right] - together)
        for latents, others in ((left, right), (right, left)):
            highest.scatter_reduce_(0, latents, jaccards, "amax")
            reached = jaccards == highest[latents]
            partners[latents[reached]] = others[reached]
        for threshold in pairs:
            pairs[threshold] += int((jaccards > threshold).sum())
    return CoFiring(
        n_tokens=n_tokens,
        times_fired=times_fired,
        highest=highest,
        partners=partners,
        pairs=pairs,
        chance=chance_co_firing(times_fired, n_tokens),
    )


def _firings(batches: Iterable[Tensor]) -> tuple[Any, Int[Tensor, " d_sae"]]:
    """Every latent's firing on every token, a sparse matrix of ones, and how often it fires."""
    found, n_tokens, d_sae = [], 0, 0
    for acts in checks.checked_batches(batches):
        d_sae = acts.shape[1]
        if acts.layout == torch.strided:  # without `to_sparse`, which not every device has
            at = acts.nonzero().T
        else:
            fires = acts.detach().coalesce()
            at = fires.indices()[:, fires.values() != 0]
        tokens, latents = at.int().cpu()
        found.append(torch.stack([latents, tokens + n_tokens]))
        n_tokens += len(acts)
    at = torch.cat(found, dim=1)
    ones = np.ones(at.shape[1], dtype=np.int32)
    matrix = sparse.csr_array((ones, tuple(at.numpy())), shape=(d_sae, n_tokens))
    return matrix, at[0].bincount(minlength=d_sae)


def _firing_together(fires: Any) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Groups of pairs of latents, the lower one first, and on how many tokens both fire."""
    d_sae = fires.shape[0]
    pairs = np.minimum(fires @ fires.sum(axis=0), d_sae).cumsum()  # at most, up to a latent
    at_once = max(1, min(_PAIRS_AT_ONCE, pairs[-1] // _LEAST_BLOCKS))
    starts = np.flatnonzero(np.diff(pairs // at_once, prepend=-1)).tolist()
    for first, end in pairwise([*starts, d_sae]):
        counts = sparse.triu(fires[first:end] @ fires[first:].T, k=1, format="coo")
        left, right = (torch.from_numpy(at).long() + first for at in (counts.row, counts.col))
        yield left, right, torch.from_numpy(counts.data)


@torch.no_grad()
def pair_jaccards(
    batches: Iterable[Tensor], pairs: Int[Tensor, "pairs 2"]
) -> Float[Tensor, " pairs"]:
    """Measure the Jaccard of the firing of given pairs of latents.

    Args:
        batches: The latents' activations on text, as in `co_firing`, dense.
        pairs: Pairs of latents.

    Returns:
        A number from 0 to 1 for each pair; 0 where neither latent fires.
    """
    checks.check_pairs(pairs)
    both, either = torch.zeros(2, len(pairs), dtype=torch.long, device="cpu")
    for acts in batches:
        checks.check_pairs(pairs, acts.shape[-1])
        for tile in slices_of_tiles((len(pairs), len(acts)), acts.device):
            left, right = ((acts[:, latents] != 0).cpu() for latents in pairs[tile].T)
            both[tile] += (left & right).sum(dim=0)
            either[tile] += (left | right).sum(dim=0)
    return both.double() / either.clamp(min=1)


def chance_co_firing(times_fired: Int[Tensor, " d_sae"], n_tokens: int) -> float:
    r"""Mean highest Jaccard of latents that fire independently of each other.

    .. math::
        \mathbb E \max_{j \neq i} J_{ij} =
        1 - \int_0^1 \prod_{j \neq i} P\!\left(C_{ij} \le \frac{t (n_i + n_j)}{1 + t}\right) dt,
        \qquad C_{ij} \sim \mathrm{Hypergeometric}(N, n_i, n_j)

    for a latent that fires on :math:`n_i` of N tokens, then the mean over the latents that
    fire. Above 4,096 tokens, the number C of common ones is taken for the binomial number of
    its mean and variance. Rates within 5 % of each other are taken for one.

    Args:
        times_fired: On how many tokens each latent fires.
        n_tokens: Tokens.

    Returns:
        The chance level, from 0 to 1.
    """
    fired = times_fired[times_fired > 0].double().cpu().numpy()
    rates = (_LEVELS * np.log(fired)).round()
    _, group, sizes = np.unique(rates, return_inverse=True, return_counts=True)
    n = np.bincount(group, weights=fired) / sizes
    # More steps where the Jaccard is small: most of what chance makes is.
    root = (np.arange(_STEPS) + 0.5) / _STEPS
    t, width = root**2, 2 * root / _STEPS
    total = 0.0
    for level, size in enumerate(sizes):
        most = np.floor((t / (1 + t))[:, None] * (n + n[level]))
        below = _at_most(most, n_tokens, n[level], n)
        others = sizes - (np.arange(len(sizes)) == level)
        product = np.exp((others * np.log(below.clip(min=1e-300))).sum(axis=1))
        total += size * ((1 - product) * width).sum()
    return float(total / max(sizes.sum(), 1.0))


def _log_binom(n: Any, k: Any) -> Any:
    """The logarithm of a binomial coefficient, which is 0 for a k below 0 or above n."""
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)


def _at_most(most: Any, n_tokens: int, n_left: float, n_right: Any) -> Any:
    """The probability that latents, which fire so often, share at most so many tokens."""
    if n_tokens <= _EXACT_UP_TO:
        a, b = np.round(n_left), np.round(n_right)
        c = np.arange(min(a, b.max()) + 1)[:, None]
        p = np.exp(_log_binom(a, c) + _log_binom(n_tokens - a, b - c) - _log_binom(n_tokens, b))
        at = most.astype(int).clip(max=len(c) - 1)
        found: Any = np.take_along_axis(p.cumsum(axis=0).clip(max=1), at, axis=0)
        return found
    # Where a latent fires on most tokens, those on which it is silent are counted.
    left_silent, right_silent = 2 * n_left > n_tokens, 2 * n_right > n_tokens
    left = n_tokens - n_left if left_silent else n_left
    right = np.where(right_silent, n_tokens - n_right, n_right)
    shared = left * right / n_tokens
    one_silent = left_silent != right_silent
    least = np.where(left_silent & right_silent, n_left + n_right - n_tokens, 0)
    whole = n_right if left_silent else n_left  # of the latent that is not counted by silence
    most = np.where(one_silent, whole - most - 1, most - least)
    p = 1 - (1 - left / n_tokens) * (1 - right / n_tokens) * n_tokens / max(n_tokens - 1, 1)
    drawn = shared / p.clip(min=1e-12)
    below = betainc((drawn - most).clip(min=1e-300), most.clip(min=0) + 1, 1 - p.clip(0, 1))
    below = np.where(most >= np.minimum(left, right).clip(max=drawn), 1.0, below)
    below = np.where(most < 0, 0.0, below)
    return np.where(one_silent, 1 - below, below)
