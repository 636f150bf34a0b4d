"""One SAE beside another: which latents match, and what became of those that were alike."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.analysis import pair_jaccards, pairs_above
from sae_lens_c2r.inspection.activations import (
    ActivationSource,
    AnySAE,
    TextActivations,
    encode,
)
from sae_lens_c2r.inspection.contexts import Pair, check_latents, pairs_in_context
from sae_lens_c2r.inspection.measures import SAEReport, cosine_summary, measure
from sae_lens_c2r.penalties.precision import unit_rows
from sae_lens_c2r.penalties.tiles import slices_of_tiles
from sae_lens_c2r.saes.sae_ref import SAERef

ALIKE = 0.7  # the cosine above which two latents are a redundant pair
TOGETHER = 0.5  # the Jaccard above which they fire together
Kind = Literal["merged", "apart and firing together", "apart", "still alike"]


@dataclass(frozen=True)
class RedundantPairs:
    """The pairs of live latents of an SAE that are alike, and what became of them in another.

    Args:
        kinds: What became of each pair.
        before: Its Jaccard.
        after: The Jaccard of the latents that match; 1 for one that matches both.
    """

    kinds: list[Kind]
    before: Float[Tensor, " pairs"]
    after: Float[Tensor, " pairs"]

    def summary(self) -> dict[str, float | None]:
        """How many pairs are of each kind, and their Jaccard; that after of two latents."""
        two = torch.tensor([kind != "merged" for kind in self.kinds], dtype=torch.bool)
        return {
            "pairs": len(self.kinds),
            **{kind.replace(" ", "_"): self.kinds.count(kind) for kind in get_args(Kind)},
            "jaccard_before": _mean(self.before),
            "jaccard_of_two_after": _mean(self.after[two]),
        }


@dataclass(frozen=True)
class MatchedPair:
    """A redundant pair in context, and the latents of the other SAE that match its two.

    Args:
        pair: The pair.
        cosines: Of each of its latents with the one that matches it.
        matches: The latents that match, as a pair; they may be one latent.
    """

    pair: Pair
    cosines: tuple[float, float]
    matches: Pair

    @property
    def kind(self) -> Kind:
        """What became of the two latents."""
        first, second = self.matches.latents
        one = first.index == second.index
        return kind_of(one=one, cosine=self.matches.cosine, jaccard=self.matches.jaccard)


@dataclass(frozen=True)
class Comparison:
    """An SAE beside another one, on the same text.

    Args:
        before: The name of the first.
        after: The name of the second.
        cosines: Of each live latent of the first with the one that matches it.
        redundant_pairs: What became of the first one's latents that are alike.
        shown: The most redundant pairs, in context.
    """

    before: str
    after: str
    cosines: Float[Tensor, " live"]
    redundant_pairs: RedundantPairs
    shown: list[MatchedPair]

    def summary(self) -> dict[str, Any]:
        """The numbers, as they are written to a file."""
        matched: dict[str, float] = {"latents": len(self.cosines)}
        if len(self.cosines):
            matched |= cosine_summary(self.cosines)
        return {"redundant_pairs": self.redundant_pairs.summary(), "matched_latents": matched}

    def sentences(self) -> str:
        """The numbers, in words."""
        pairs = self.redundant_pairs
        n = {kind: f"{pairs.kinds.count(kind):,}" for kind in get_args(Kind)}
        sentences = [
            f"Of {len(pairs.kinds):,} pairs of latents of {self.before} with a cosine above "
            f"{ALIKE}, {self.after} has {n['merged']} merged into one latent, "
            f"{n['apart and firing together']} apart and firing together (Jaccard above "
            f"{TOGETHER}), {n['apart']} apart, {n['still alike']} still alike."
        ]
        means = pairs.summary()
        if means["jaccard_of_two_after"] is not None:
            sentences.append(
                f"Their mean Jaccard was {means['jaccard_before']:.2f}; where there are two "
                f"latents now, it is {means['jaccard_of_two_after']:.2f}."
            )
        if len(self.cosines):
            matched = cosine_summary(self.cosines)
            sentences.append(
                f"Half of the {len(self.cosines):,} latents of {self.before} that fire have a "
                f"cosine of at least {matched['cosine_median']:.3f} with the latent of "
                f"{self.after} that matches them, 99 % one of at least "
                f"{matched['cosine_1st_percentile']:.3f}."
            )
        return " ".join(sentences)


def kind_of(*, one: bool, cosine: float, jaccard: float) -> Kind:
    """What became of two latents, of the one or the two latents that match them."""
    if one:
        return "merged"
    if cosine > ALIKE:
        return "still alike"
    return "apart and firing together" if jaccard > TOGETHER else "apart"


@torch.no_grad()
def compare(
    before: AnySAE,
    after: AnySAE,
    text: TextActivations,
    *,
    reports: tuple[SAEReport, SAEReport],
) -> Comparison:
    """Compare two SAEs of the same activations.

    Args:
        before: The first.
        after: The second.
        text: A text that their model has read.
        reports: What was measured of them on it.

    Returns:
        Which latents match, and what became of the first one's redundant pairs.
    """
    first, second = (report.on_text for report in reports)
    assert first is not None, "measured on the text"
    assert second is not None, "measured on the text"
    cosines, matches = matched_latents(before.W_dec, after.W_dec, second.fires)
    shown = torch.tensor(
        [[latent.index for latent in pair.latents] for pair in first.pairs], dtype=torch.long
    ).view(-1, 2)
    cosines_shown = [(left, right) for left, right in cosines[shown].tolist()]
    matching = pairs_in_context(after, text, matches[shown])
    both = zip(first.pairs, cosines_shown, matching, strict=True)
    return Comparison(
        reports[0].name,
        reports[1].name,
        cosines[first.fires],
        _redundant_pairs(before, after, text, matches, first.fires),
        [MatchedPair(*each) for each in both],
    )


@torch.no_grad()
def matched_latents(
    before: Float[Tensor, "latents d_in"],
    after: Float[Tensor, "others d_in"],
    fires: Bool[Tensor, " others"],
) -> tuple[Float[Tensor, " latents"], Int[Tensor, " latents"]]:
    """The latent of another SAE that matches each latent: the nearest one that fires.

    Args:
        before: The decoder.
        after: The other SAE's.
        fires: Which of the other's latents fire.

    Returns:
        The cosines of their decoder rows, and the latents that match, on the CPU.
    """
    rows, others = unit_rows(before), unit_rows(after)
    silent = ~fires.to(others.device)
    found = []
    for tile in slices_of_tiles((len(rows), len(others)), rows.dtype, rows.device):
        cosines = (rows[tile] @ others.T).masked_fill(silent, -torch.inf)
        found.append(cosines.max(dim=1))
    highest, nearest = (torch.cat(parts).cpu() for parts in zip(*found, strict=True))
    return highest.float().clamp(-1, 1), nearest


def inspect(
    sources: Sequence[SAERef],
    *,
    device: str,
    on_error: Callable[[str], None],
    text_source: ActivationSource | None = None,
    latents: Sequence[int] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[list[SAEReport], Comparison | None]:
    """Measure SAEs; one that cannot be loaded does not stop the others.

    Args:
        sources: Which.
        device: Where.
        on_error: Told, in one line, of each that cannot be measured, and of each that only
            its weights can be measured of.
        text_source: Runs their models over a text; `None` for their weights alone.
        latents: Which to look at one by one, on the text.
        tell: Told of each that is begun.

    Returns:
        The reports; and the comparison of the SAEs, if they are two of the same activations.
    """
    reports: list[SAEReport] = []
    kept: list[tuple[AnySAE, TextActivations]] = []  # of two, to be compared
    for number, source in enumerate(sources, start=1):
        tell(f"{number} of {len(sources)}: {source.name}")
        try:
            sae = source.load(device)
            if text_source is not None:
                _check_asked(sae, source.name, text_source, latents)
            text = _activations(sae, source.name, text_source, on_error)
            reports.append(measure(sae, source.name, text, latents=latents))
        except UserError as error:
            on_error(str(error))
            continue
        if text is not None and len(sources) == 2:
            kept.append((sae, text))
    if len(kept) < 2 or kept[0][1] is not kept[1][1]:
        return reports, None
    (before, text), (after, _) = kept
    return reports, compare(before, after, text, reports=(reports[0], reports[1]))


def _check_asked(
    sae: AnySAE, name: str, text_source: ActivationSource, latents: Sequence[int]
) -> None:
    """Raise, before anything is measured, unless an SAE has the latents, and a model."""
    try:
        check_latents(latents, sae.cfg.d_sae)
        text_source.name_of_model(sae)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None


def _activations(
    sae: AnySAE,
    name: str,
    text_source: ActivationSource | None,
    on_error: Callable[[str], None],
) -> TextActivations | None:
    try:
        return text_source.activations(sae, name) if text_source is not None else None
    except UserError as error:
        on_error(str(error))
        return None


@torch.no_grad()
def _redundant_pairs(
    before: AnySAE,
    after: AnySAE,
    text: TextActivations,
    matches: Int[Tensor, " latents"],
    fires: Bool[Tensor, " latents"],
) -> RedundantPairs:
    pairs = pairs_above(before.W_dec, ALIKE).cpu()
    pairs = pairs[fires[pairs].all(dim=1)]
    places = matches[pairs]
    left, right = (unit_rows(after.W_dec[latents]) for latents in places.T)
    cosines = (left * right).sum(dim=1)
    jaccards = (
        pair_jaccards(_acts(before, text), pairs),
        pair_jaccards(_acts(after, text), places),
    )
    one = places[:, 0] == places[:, 1]
    each = zip(one.tolist(), cosines.tolist(), jaccards[1].tolist(), strict=True)
    return RedundantPairs([kind_of(one=o, cosine=c, jaccard=j) for o, c, j in each], *jaccards)


def _acts(sae: AnySAE, text: TextActivations) -> Iterator[Tensor]:
    return (acts for _, acts in encode(sae, text))


def _mean(values: Tensor) -> float | None:
    return values.mean().item() if len(values) else None
