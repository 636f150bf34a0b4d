"""Measures of an SAE: of its weights and, if there is a text, on that."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from sae_lens.evals import ExplainedVarianceCalculator
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.analysis import (
    AbsorptionPairs,
    CoFiring,
    absorption_pairs,
    chance_composition,
    co_firing,
    composition,
    count_pairs,
    max_cosines,
)
from sae_lens_c2r.inspection.activations import AnySAE, TextActivations, encode
from sae_lens_c2r.inspection.contexts import (
    PAIRS_SHOWN,
    Latent,
    Pair,
    latents_in_context,
    most_alike,
    pairs_in_context,
)

THRESHOLDS = (0.9, 0.7)
INTERVALS = 50  # of a distribution of maximum cosine


@dataclass(frozen=True)
class Inspection:
    """The measures of an SAE's weights, and what its config says.

    Args:
        name: Of the SAE, where it is shown.
        architecture: SAELens's name of its form.
        trained_as: SAELens's name of what it was trained as, where that is known.
        d_in: Dimension of the inputs.
        d_sae: Latents.
        max_cosines: Every latent's highest cosine with another one's decoder row.
        composition: Their mean, the paper's feature composition.
        chance_composition: Composition of random directions.
        pairs: Pairs of latents with a cosine above each of `THRESHOLDS`.
        decoder_norms: Lengths of the decoder's rows.
        metadata: What SAELens wrote of its training: model, hook, data.
    """

    name: str
    architecture: str
    trained_as: str | None
    d_in: int
    d_sae: int
    max_cosines: Tensor
    composition: float
    chance_composition: float
    pairs: list[int]
    decoder_norms: Tensor
    metadata: dict[str, Any]

    @property
    def cosine_counts(self) -> list[int]:
        """Latents by their highest cosine: in equal intervals from 0 to 1, the rest below."""
        cosines = self.max_cosines.float().clamp(0, 1)
        return [int(count) for count in torch.histc(cosines, bins=INTERVALS, min=0, max=1)]

    @property
    def zero_rows(self) -> int:
        """Latents whose decoder row is 0: they say nothing."""
        return int((self.decoder_norms == 0).sum())


@dataclass(frozen=True)
class TextMetrics:
    """The measures of an SAE on a text.

    Args:
        text: The name of the text.
        model: The name of the model that read it.
        explained_variance: Share of the activations' variance that is reconstructed, as
            SAELens computes it.
        co_firing: How much the latents fire together.
        composition: Composition of the latents that fire, among themselves.
        chance_composition: That of as many random directions.
        absorption: Absorption pairs, and what the paper's Eq. (13) compares.
        pairs: The most redundant pairs, in context.
    """

    text: str
    model: str
    explained_variance: float
    co_firing: CoFiring
    composition: float
    chance_composition: float
    absorption: AbsorptionPairs
    pairs: list[Pair]

    @property
    def n_tokens(self) -> int:
        """Tokens of the text, without special ones."""
        return self.co_firing.n_tokens

    @property
    def fires(self) -> Tensor:
        """Whether each latent fires on any token."""
        return self.co_firing.times_fired > 0

    @property
    def l0(self) -> float:
        """Latents that fire, on average over the tokens."""
        return self.co_firing.times_fired.sum().item() / self.n_tokens

    @property
    def dead(self) -> int:
        """Latents that fire on no token."""
        return int((~self.fires).sum())

    @property
    def frequencies(self) -> Float[Tensor, " d_sae"]:
        """Share of the tokens on which each latent fires."""
        return self.co_firing.times_fired / self.n_tokens


@dataclass(frozen=True)
class SAEReport:
    """All that is shown of an SAE.

    Args:
        inspection: The measures of its weights.
        on_text: Those on a text, if there is one.
        latents: Latents that somebody asked for, on the text.
        tokens_per_second: Speed of the steps of its training, where that was watched.
        kept: The cosine of each latent with what it was, where it was trained on.
    """

    inspection: Inspection
    on_text: TextMetrics | None = None
    latents: Sequence[Latent] = ()
    tokens_per_second: float | None = None
    kept: Float[Tensor, " d_sae"] | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        return self.inspection.name

    def metrics(self) -> dict[str, Any]:
        """Its numbers, as they are written to a file and shown in tables."""
        weights, on_text = self.inspection, self.on_text
        above_0_9, above_0_7 = weights.pairs
        metrics: dict[str, Any] = {
            "architecture": weights.architecture,
            "d_sae": weights.d_sae,
            "d_in": weights.d_in,
            "composition": weights.composition,
            "chance_composition": weights.chance_composition,
            "pairs_above_0_9": above_0_9,
            "pairs_above_0_7": above_0_7,
        }
        if on_text is not None:
            metrics |= {
                "composition_of_live": on_text.composition,
                "chance_of_live": on_text.chance_composition,
                "explained_variance": on_text.explained_variance,
                "l0": on_text.l0,
                "dead_latents": on_text.dead,
                "co_firing": on_text.co_firing.summary(),
                "absorption": _absorption_summary(on_text.absorption),
            }
        if self.tokens_per_second is not None:
            metrics["tokens_per_second"] = self.tokens_per_second
        if self.kept is not None:
            metrics |= cosine_summary(self.kept)
        return metrics

    def flat_metrics(self) -> dict[str, Any]:
        """Its numbers, by their keys joined by dots."""
        flat: dict[str, Any] = {}
        for key, value in self.metrics().items():
            inner = value if isinstance(value, dict) else None
            flat |= (
                {key: value} if inner is None else {f"{key}.{k}": v for k, v in inner.items()}
            )
        return flat


def _absorption_summary(pairs: AbsorptionPairs) -> dict[str, float]:
    summary: dict[str, float] = {"pairs": len(pairs)}
    if len(pairs):
        summary["eq_13_holds"] = pairs.satisfied.double().mean().item()
        summary["median_A_by_B"] = (pairs.A / pairs.B).median().item()
    return summary


def cosine_summary(cosines: Tensor) -> dict[str, float]:
    """The median and the first percentile of the cosines of latents with others."""
    return {
        "cosine_median": cosines.median().item(),
        "cosine_1st_percentile": torch.quantile(cosines, 0.01).item(),
    }


@torch.no_grad()
def inspect_sae(sae: AnySAE, name: str) -> Inspection:
    """Measure an SAE's weights.

    Args:
        sae: Any SAE of SAELens's.
        name: What to call it.

    Returns:
        The measures.

    Raises:
        UserError: If a weight is not finite, or the decoder has fewer than 2 rows or columns.
    """
    for weight, tensor in sae.state_dict().items():
        if not tensor.isfinite().all():
            raise UserError(f"{name}: `{weight}` should be finite. Found NaN or infinity.")
    W_dec = sae.W_dec.detach()
    if W_dec.ndim != 2 or min(W_dec.shape) < 2:
        should = "be a matrix of at least 2 latents and dimensions"
        raise UserError(f"{name}: `W_dec` should {should}. Found {tuple(W_dec.shape)}.")
    cosines = max_cosines(W_dec)
    metadata = dict(sae.cfg.metadata.to_dict())
    return Inspection(
        name=name,
        architecture=sae.cfg.architecture(),
        trained_as=metadata.get("training_architecture"),
        d_in=sae.cfg.d_in,
        d_sae=sae.cfg.d_sae,
        max_cosines=cosines.cpu(),
        composition=cosines.mean().item(),
        chance_composition=chance_composition(*W_dec.shape),
        pairs=count_pairs(W_dec, above=THRESHOLDS),
        decoder_norms=W_dec.norm(dim=-1).cpu(),
        metadata=metadata,
    )


@torch.no_grad()
def measure_on_text(sae: AnySAE, text: TextActivations) -> TextMetrics:
    """Measure an SAE on a text that its model has read."""
    explained_variance = ExplainedVarianceCalculator()

    def batches() -> Iterator[Tensor]:
        for inputs, acts in encode(sae, text):
            explained_variance.add_batch(sae.decode(acts), inputs)
            yield acts

    together = co_firing(batches())
    live = sae.W_dec[(together.times_fired > 0).to(sae.W_dec.device)]
    enough = len(live) > 1
    pairs = most_alike(sae.W_dec, together.times_fired, PAIRS_SHOWN)
    return TextMetrics(
        text=text.text,
        model=text.model,
        explained_variance=explained_variance.compute(),
        co_firing=together,
        composition=composition(live) if enough else 0.0,
        chance_composition=chance_composition(*live.shape) if enough else 0.0,
        absorption=absorption_pairs(sae.W_dec, (acts for _, acts in encode(sae, text))),
        pairs=pairs_in_context(sae, text, pairs),
    )


def measure(
    sae: AnySAE, name: str, text: TextActivations | None = None, *, latents: Sequence[int] = ()
) -> SAEReport:
    """Measure an SAE.

    Args:
        sae: Any SAE of SAELens's.
        name: What to call it.
        text: A text that its model has read; `None` to measure the weights alone.
        latents: Latents to show one by one, on the text.

    Returns:
        The measures.

    Raises:
        UserError: If a weight is not finite, or the decoder has fewer than 2 rows or columns.
    """
    inspection = inspect_sae(sae, name)
    if text is None:
        return SAEReport(inspection)
    shown = latents_in_context(sae, text, latents) if latents else []
    return SAEReport(inspection, measure_on_text(sae, text), shown)
