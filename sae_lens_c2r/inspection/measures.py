"""Measures of an SAE: of its weights and, if given, on a text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from sae_lens import SAEConfig
from sae_lens.evals import ExplainedVarianceCalculator
from torch import Tensor

from sae_lens_c2r import analysis
from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.analysis.metrics import METRICS, is_finite
from sae_lens_c2r.inspection.contexts import (
    PAIRS_SHOWN,
    AnySAE,
    Pair,
    TextActivations,
    encode,
    most_alike,
    most_together,
    pairs_in_context,
)
from sae_lens_c2r.saes.origins import check_weights

THRESHOLDS = (0.9, 0.7)
_SIGNED = {"abstopk", "abstopk_c2r"}  # whose latents fire with either sign
_INTERVALS = 50  # of a distribution of maximum cosine
# Latents by their highest cosine, from this one to the next; the lowest has negative ones too.
_COSINES = [f"max_cosines_from_{i / _INTERVALS:.2f}" for i in range(_INTERVALS)]


@dataclass(frozen=True)
class TextMetrics:
    """The measures of an SAE on a text that a model has read."""

    text: str
    model: str
    n_tokens: int  # on which the SAE was measured
    numbers: dict[str, float]  # by their keys in METRICS
    frequencies: Float[Tensor, " d_sae"]  # shares of the tokens on which each latent fires
    pairs: list[Pair]  # the most redundant ones by direction, in context
    together: list[Pair]  # those that fire together most
    missing: Sequence[str] = ()  # the keys of numbers that are not finite
    left_out: Mapping[str, int] = field(default_factory=dict)  # other tokens, by why

    @property
    def tokens(self) -> str:
        """How many tokens were read, and left out."""
        text = f"{self.n_tokens:,} tokens of {self.text}, read by {self.model}"
        counts = [f"{number:,} {why}" for why, number in self.left_out.items()]
        return f"{text}. Left out: {', '.join(counts)}" if counts else text

    @property
    def fires(self) -> Tensor:
        """Whether each latent fires on any token."""
        return self.frequencies > 0


@dataclass(frozen=True)
class SAEReport:
    """All that is shown of an SAE: measures of its weights and, if given, on a text."""

    name: str  # in tables and pictures
    source: str  # the whole name
    config: SAEConfig  # of the form in which it is
    numbers: dict[str, float]  # of the weights
    on_text: TextMetrics | None = None

    def metrics(self) -> dict[str, Any]:
        """Its numbers by their keys in METRICS, as files and tables have them."""
        form: dict[str, Any] = {"architecture": self.config.architecture()}
        form |= {name: getattr(self.config, name) for name in ("d_sae", "d_in")}
        on_text = self.on_text.numbers if self.on_text else {}
        numbers = {**self.numbers, **on_text}
        form |= {key: value for key, value in numbers.items() if key in METRICS}
        if self.on_text:
            form["n_tokens"] = self.on_text.n_tokens
            form["n_tokens_left_out"] = sum(self.on_text.left_out.values())
        return form


def max_cosine_counts(numbers: Mapping[str, float]) -> list[float] | None:
    """Latents by their highest cosine, of the numbers of an SAE's weights, if they have all."""
    return [numbers[key] for key in _COSINES] if numbers.keys() >= set(_COSINES) else None


def cosine_summary(cosines: Tensor) -> dict[str, float]:
    """The median and the first percentile of cosines of latents; nothing if there are none."""
    if not len(cosines):
        return {}
    return {
        "cosine_median": cosines.median().item(),
        "cosine_1st_percentile": torch.quantile(cosines, 0.01).item(),
    }


def count_max_cosines(max_cosines: Tensor) -> dict[str, int]:
    """Latents by their highest cosine, in equal intervals from 0 to 1, the rest below."""
    counts = torch.histc(max_cosines.float().clamp(0, 1), bins=_INTERVALS, min=0, max=1)
    return dict(zip(_COSINES, counts.int().tolist(), strict=True))


def _chance_of(rows: Tensor) -> float:
    """The chance level of composition; 0, as composition is, of a latent without another."""
    return analysis.chance_composition(*rows.shape) if len(rows) > 1 else 0.0


def _encoder_composition(sae: AnySAE) -> dict[str, float]:
    """Composition of the encoder's columns, if it has one for each decoder row, as long."""
    W_enc = getattr(sae, "W_enc", None)
    if W_enc is None or W_enc.T.shape != sae.W_dec.shape:
        return {}
    return {"encoder_composition": analysis.composition(W_enc.detach().T)}


@torch.no_grad()
def fidelity_and_firing(
    sae: AnySAE, text: TextActivations
) -> tuple[analysis.CoFiring, dict[str, float]]:
    """How latents fire on a text, and the measures of that and of reconstructions."""
    explained_variance = ExplainedVarianceCalculator()

    def batches() -> Iterator[Tensor]:
        for inputs, acts in encode(sae, text):
            explained_variance.add_batch(sae.decode(acts), inputs)
            yield acts

    together = analysis.co_firing(batches())
    return together, {
        "explained_variance": explained_variance.compute(),
        "l0": together.times_fired.sum().item() / together.n_tokens,
        "dead_latents": (together.times_fired == 0).double().mean().item(),
        **together.summary(),
    }


@torch.no_grad()
def measure_on_text(sae: AnySAE, text: TextActivations) -> TextMetrics:
    """Measure an SAE on a text that its model has read."""
    together, measured = fidelity_and_firing(sae, text)
    times_fired = together.times_fired
    live = sae.W_dec[(times_fired > 0).to(sae.W_dec.device)]
    absorbed = dict[str, float]()
    if sae.cfg.architecture() not in _SIGNED:  # a latent and its negative would be two
        pairs = analysis.absorption_pairs(sae.W_dec, (acts for _, acts in encode(sae, text)))
        absorbed["absorption_pairs"] = len(pairs)
        if len(pairs):
            absorbed["eq_13_holds"] = pairs.satisfied.double().mean().item()
            absorbed["median_A_by_B"] = (pairs.A / pairs.B).median().item()
    numbers = {
        **measured,
        "composition_of_live": analysis.composition(live) if live.any() else 0.0,
        "chance_of_live": _chance_of(live),
        **absorbed,
    }
    missing = [name for name, value in numbers.items() if not is_finite(value)]
    numbers = {name: numbers[name] for name in numbers if name not in missing}
    return TextMetrics(
        text.text,
        text.model,
        together.n_tokens,
        numbers,
        times_fired / together.n_tokens,
        pairs_in_context(sae, text, most_alike(sae.W_dec, times_fired, PAIRS_SHOWN)),
        pairs_in_context(sae, text, most_together(together, PAIRS_SHOWN)),
        missing,
        text.left_out,
    )


@torch.no_grad()
def measure(sae: AnySAE, name: str, text: TextActivations | None = None) -> SAEReport:
    """Measure an SAE's weights, which should be finite, and the SAE on text if there is one."""
    check_weights(sae, name)
    W_dec = sae.W_dec.detach()
    if W_dec.shape[1] < 2:
        raise UserError("W_dec", "have at least 2 dimensions", W_dec.shape[1], of=name)
    cosines, n_pairs = analysis.max_cosines_and_counts(W_dec, above=THRESHOLDS)
    pairs = {f"pairs_above_{above}": n for above, n in zip(THRESHOLDS, n_pairs, strict=True)}
    return SAEReport(
        name=name,
        source=name,
        config=sae.cfg,
        numbers={
            "composition": cosines.mean().item(),
            **_encoder_composition(sae),
            "chance_composition": _chance_of(W_dec),
            **pairs,
            "zero_decoder_rows": int((W_dec == 0).all(dim=-1).sum()),
            **count_max_cosines(cosines),
        },
        on_text=measure_on_text(sae, text) if text else None,
    )
