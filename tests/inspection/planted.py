"""An SAE whose latents do what a test says, and a text for it, without a language model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from sae_lens.saes import StandardSAE, StandardSAEConfig
from torch import Tensor

from sae_lens_c2r.inspection.contexts import Latent, Pair, TextActivations, TokenInContext
from sae_lens_c2r.inspection.measures import SAEReport, TextMetrics, measure


def planted_sae(W_dec: Tensor, *, like_inputs: bool = True) -> StandardSAE:
    """An SAE with this decoder. Its latents fire as its inputs do, one for each dimension."""
    d_sae, d_in = W_dec.shape
    sae = StandardSAE(StandardSAEConfig(d_in=d_in, d_sae=d_sae))
    sae.W_dec.data = W_dec.clone()
    sae.W_enc.data = torch.eye(d_in, d_sae) if like_inputs else W_dec.T.contiguous()
    return sae


class Words:
    """A tokenizer whose tokens are their numbers."""

    def decode(self, ids: Tensor, *, skip_special_tokens: bool = False) -> str:
        shown = [number for number in ids.tolist() if number or not skip_special_tokens]
        return " ".join(f"w{number}" for number in shown)


def text_of(acts: Tensor, *, tokens_of_a_row: int = 4) -> TextActivations:
    """A text with these activations. Token number n is the word n, and 0 is a special one."""
    n_rows = -(-len(acts) // tokens_of_a_row)
    numbers = torch.arange(n_rows * tokens_of_a_row)
    rows = torch.nn.functional.pad((numbers + 1).view(n_rows, -1), (1, 0), value=0)
    places = torch.stack([numbers // tokens_of_a_row, numbers % tokens_of_a_row + 1], dim=1)
    return TextActivations(rows, acts, places[: len(acts)], Words(), "planted", "a-model")


def weights(name: str = "an-sae", *, n_rows: int = 6, **changes: Any) -> SAEReport:
    """The measures of the weights of an SAE with three pairs of latents, one of them alike."""
    rows = torch.eye(n_rows)
    rows[1, 0], rows[3, 2], rows[5, 4] = 3.0, 0.5, 0.5
    return replace(measure(planted_sae(rows), name), **changes)


def latent(index: int, fires: range, *tokens: str) -> Latent:
    """A latent that fires on the tokens of these numbers, and is shown on some words."""
    shown = [TokenInContext("the word", token, "before", 1.25) for token in tokens]
    return Latent(index, torch.tensor(fires).long(), shown)


def on_text(
    times_fired: Sequence[int] = (6, 5, 0, 1), *, n_pairs: int = 3, **changes: Any
) -> TextMetrics:
    """The measures of an SAE on ten tokens."""
    pairs = {0.5: 1234, 0.7: 56, 0.9: 7}
    absorbed = {"eq_13_holds": 2 / 3, "median_A_by_B": 4.0} if n_pairs else {}
    numbers: dict[str, float] = {
        "explained_variance": 0.8125,
        "l0": sum(times_fired) / 10,
        "dead_latents": times_fired.count(0) / len(times_fired),
        "composition_of_live": 0.3456,
        "chance_of_live": 0.1234,
        "co_firing": 0.25,
        "co_firing_chance": 0.0625,
        **{f"co_firing_pairs_above_{above}": n for above, n in pairs.items()},
        "absorption_pairs": n_pairs,
        **absorbed,
    }
    metrics = TextMetrics(
        text="my.txt",
        model="gpt2",
        n_tokens=10,
        numbers=numbers,
        frequencies=torch.tensor(times_fired) / 10,
        pairs=[Pair(0.93, (latent(11, range(4), "<b>"), latent(12, range(2, 5))))],
        together=[Pair(-0.12, (latent(13, range(3), "<i>"), latent(14, range(3))))],
    )
    return replace(metrics, **changes)


def report(name: str = "a", **changes: Any) -> SAEReport:
    """The report of an SAE that was measured on a text."""
    return weights(name, **{"on_text": on_text(), **changes})
