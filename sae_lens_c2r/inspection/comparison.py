"""One SAE beside another: which latents match, and what became of those that were alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cosine_similarity

from sae_lens_c2r._support.errors import UserError, counted
from sae_lens_c2r.analysis import latents_of_features, pair_jaccards
from sae_lens_c2r.analysis.similarity import pairs_above_and_count
from sae_lens_c2r.inspection.activations import ActivationSource
from sae_lens_c2r.inspection.contexts import (
    AnySAE,
    Pair,
    TextActivations,
    encode,
    pairs_in_context,
)
from sae_lens_c2r.inspection.measures import SAEReport, cosine_summary, measure
from sae_lens_c2r.reporting.tables import short_names
from sae_lens_c2r.saes.sae_ref import SAERef, inference_form

ALIKE = 0.7  # the cosine above which two latents are a redundant pair
TOGETHER = 0.5  # the Jaccard above which they fire together
MATCHED = 0.5  # the cosine with the nearest latent of another SAE below which it is no match
FEW_FIRINGS = 10  # of a latent, on average: with fewer, rare latents look dead
MOST_PAIRS = 10_000  # that are followed into another SAE, the most alike ones
Kind = Literal["merged", "apart and firing together", "apart", "still alike", "without a match"]


@dataclass(frozen=True)
class MatchedPair:
    """A redundant pair, and its matches in another SAE, which may be one latent."""

    pair: Pair
    cosines: Sequence[float]  # of the two with their matches
    matches: Pair

    @property
    def kind(self) -> Kind:
        """The kind of pair that the two latents became."""
        first, second = self.matches.latents
        one = first.index == second.index
        cosine, jaccard = self.matches.cosine, self.matches.jaccard
        return kind_of(match=min(self.cosines), one=one, cosine=cosine, jaccard=jaccard)


@dataclass(frozen=True)
class Comparison:
    """An SAE beside another one, on the same text."""

    before: str
    after: str
    # What became of `redundant_pairs` of the first one's live latents; of `matched_latents`,
    # how many fire, and their cosines with their matches.
    numbers: dict[str, dict[str, float]]
    shown: list[MatchedPair]  # the most redundant ones, in context

    def sentences(self) -> str:
        """The numbers, in words."""
        pairs, matched = self.numbers["redundant_pairs"], self.numbers["matched_latents"]
        followed = "In"
        if "most_alike" in pairs:
            followed = f"Of the {pairs['most_alike']:,} most alike, in"
        text = (
            f"{self.before} has {counted(pairs['pairs'], 'pair')} of latents with a cosine "
            f"above {ALIKE}. {followed} {self.after}: {pairs['merged']:,} merged into one "
            f"latent, {pairs['apart_and_firing_together']:,} apart and firing together "
            f"(Jaccard above {TOGETHER}), {pairs['apart']:,} apart and not firing together, "
            f"{pairs['still_alike']:,} still alike, {pairs['without_a_match']:,} without a "
            f"match (no cosine of {MATCHED} or more)."
        )
        if "cosine_median" in matched:
            text += (
                f" Of the {matched['latents']:,} latents of {self.before} that fire, half have "
                f"a cosine of at least {matched['cosine_median']:.3f} with their match in "
                f"{self.after}, and 99 % have at least "
                f"{matched['cosine_1st_percentile']:.3f}."
            )
        return text


def kind_of(*, match: float, one: bool, cosine: float, jaccard: float) -> Kind:
    """Name what two latents became, by the one or the two latents that match them."""
    if not match >= MATCHED:  # the lower cosine of the two with theirs
        return "without a match"
    if one:
        return "merged"
    if cosine > ALIKE:
        return "still alike"
    return "apart and firing together" if jaccard > TOGETHER else "apart"


@torch.no_grad()
def compare(
    before: AnySAE, after: AnySAE, text: TextActivations, *, reports: Sequence[SAEReport]
) -> Comparison:
    """Compare two SAEs of the same activations, which were measured on the same text."""
    first, second = (report.on_text for report in reports)
    assert first is not None, "measured on the text"
    assert second is not None, "measured on the text"
    cosines, matches = matched_latents(before.W_dec, after.W_dec, second.fires)
    pairs = [[latent.index for latent in pair.latents] for pair in first.pairs]
    indices = torch.tensor(pairs, dtype=torch.long).view(-1, 2)
    matching = pairs_in_context(after, text, matches[indices])
    live = cosines[first.fires]
    numbers = {
        "redundant_pairs": _redundant_pairs(
            before, after, text, (cosines, matches), first.fires
        ),
        "matched_latents": {"latents": len(live), **cosine_summary(live)},
    }
    matched = zip(first.pairs, cosines[indices].tolist(), matching, strict=True)
    shown = [MatchedPair(*each) for each in matched]
    return Comparison(reports[0].name, reports[1].name, numbers, shown)


@torch.no_grad()
def matched_latents(
    before: Float[Tensor, "latents d_in"],
    after: Float[Tensor, "others d_in"],
    fires: Bool[Tensor, " others"],
) -> tuple[Float[Tensor, " latents"], Int[Tensor, " latents"]]:
    """Of each latent the nearest one of another SAE that fires, if any: cosines, and which."""
    among = (fires if fires.any() else torch.ones_like(fires)).nonzero().squeeze(1)
    nearest, cosines = latents_of_features(after[among.to(after.device)], before)
    return cosines.float().clamp(-1, 1).cpu(), among[nearest.cpu()]


def _redundant_pairs(
    before: AnySAE,
    after: AnySAE,
    text: TextActivations,
    matched: tuple[Float[Tensor, " latents"], Int[Tensor, " latents"]],
    fires: Bool[Tensor, " latents"],
) -> dict[str, float]:
    """Count what the pairs of live latents of an SAE that are alike became."""
    with_match, matches = matched
    live = fires.nonzero().squeeze(1)
    rows = before.W_dec[live.to(before.W_dec.device)]
    found, n_pairs = live.new_empty(0, 2), 0
    if len(rows):
        found, n_pairs = pairs_above_and_count(rows, ALIKE, most=MOST_PAIRS)
    pairs = live[found.cpu()]
    places, weaker = matches[pairs], with_match[pairs].amin(dim=1)
    left, right = (after.W_dec[latents].float() for latents in places.T)
    cosines = cosine_similarity(left, right).tolist()
    jaccards = pair_jaccards((acts for _, acts in encode(after, text)), places)
    one = places[:, 0] == places[:, 1]
    facts = zip(weaker.tolist(), one.tolist(), cosines, jaccards.tolist(), strict=True)
    kinds = [
        kind_of(match=match, one=one, cosine=cosine, jaccard=jaccard)
        for match, one, cosine, jaccard in facts
    ]
    numbers: dict[str, float] = {"pairs": n_pairs}
    if n_pairs > len(pairs):
        numbers["most_alike"] = len(pairs)
    return numbers | {kind.replace(" ", "_"): kinds.count(kind) for kind in get_args(Kind)}


def inspect(
    refs: Sequence[SAERef],
    *,
    device: str,
    on_error: Callable[[UserError], None],
    source: ActivationSource | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[list[SAEReport], list[Comparison]]:
    """Measure SAEs, on a text if there is one, and compare them if there are two."""
    reports: list[SAEReport] = []
    short = short_names([ref.name for ref in refs])
    measured: list[tuple[AnySAE, TextActivations | None]] = []
    for number, ref in enumerate(refs, start=1):
        tell(f"{number} of {len(refs)}: {ref.name}")
        text = None
        try:
            sae = inference_form(ref.load(device), fold=False)
            if source is not None:
                try:
                    text = source.activations(sae, ref.name)
                except UserError as error:  # its weights are measured nonetheless
                    on_error(error)
            reports.append(replace(measure(sae, ref.name, text), name=short[number - 1]))
            if on_text := reports[-1].on_text:
                firings = on_text.frequencies.mean().item() * on_text.n_tokens
                if firings < FEW_FIRINGS:
                    tell(
                        f"{ref.name}: {on_text.n_tokens:,} tokens are too few to tell which "
                        f"latents are dead: they fire {firings:.1f} times on average."
                    )
                if on_text.missing:
                    tell(f"{ref.name}: not finite: {', '.join(on_text.missing)}.")
        except UserError as error:
            on_error(error)
            continue
        if len(refs) == 2:  # of more, none is kept
            measured.append((sae, text))
    if len(measured) == 2:
        (before, text), (after, same_text) = measured
        if text is not None and text is same_text:
            return reports, [compare(before, after, text, reports=reports)]
        if text is not None and same_text is not None:
            tell("The SAEs are not compared: they read other activations of the text.")
    return reports, []
