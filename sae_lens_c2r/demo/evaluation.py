"""What the saved SAEs do on text that neither was trained on."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from sae_lens import SAE
from sae_lens.evals import ExplainedVarianceCalculator
from torch import Tensor

from sae_lens_c2r.analysis import (
    chance_composition,
    composition,
    count_pairs,
)
from sae_lens_c2r.demo.settings import HOOK_NAME
from sae_lens_c2r.inspection.text import TextActivations, encode, times_fired
from sae_lens_c2r.offline.minilm import CLS, PAD, SEP

_ROWS_PER_BATCH = 32


@dataclass(frozen=True)
class Metrics:
    """One line of the demo's table."""

    explained_variance: float
    l0: float
    composition: float
    chance_composition: float
    pairs_above_0_9: int
    pairs_above_0_7: int
    dead_latents: int
    tokens_per_second: float


@torch.no_grad()
def held_out_activations(model: Any, rows: Int[Tensor, "rows context"]) -> TextActivations:
    """Run the transformer over held-out rows.

    Args:
        model: SAELens's wrapper of the transformer.
        rows: Token ids.

    Returns:
        The activations at the demo's hook, with the place of each.
    """
    device = next(model.model.parameters()).device
    activations = []
    for batch in rows.split(_ROWS_PER_BATCH):
        # Naming a layer to stop at has SAELens's wrapper stop at the hook.
        _, cache = model.run_with_cache(
            batch.to(device), names_filter=[HOOK_NAME], stop_at_layer=-1
        )
        activations.append(cache[HOOK_NAME].cpu())
    is_text = ~torch.isin(rows, torch.tensor([PAD, CLS, SEP]))
    return TextActivations(rows, torch.cat(activations)[is_text], is_text.nonzero())


@torch.no_grad()
def evaluate(sae: SAE[Any], held_out: TextActivations, *, tokens_per_second: float) -> Metrics:
    """Measure an SAE in its inference form.

    Args:
        sae: The SAE, as anybody would load it.
        held_out: The held-out activations.
        tokens_per_second: Speed of its training, for the table.

    Returns:
        The metrics. A latent is dead if it fires on no held-out token.
    """
    explained_variance = ExplainedVarianceCalculator()
    fired = times_fired(sae, held_out)
    for inputs, feature_acts in encode(sae, held_out):
        explained_variance.add_batch(sae.decode(feature_acts), inputs)
    pairs_above_0_9, pairs_above_0_7 = count_pairs(sae.W_dec, above=(0.9, 0.7))
    return Metrics(
        explained_variance=explained_variance.compute(),
        l0=fired.sum().item() / len(held_out.activations),
        composition=composition(sae.W_dec),
        chance_composition=chance_composition(*sae.W_dec.shape),
        pairs_above_0_9=pairs_above_0_9,
        pairs_above_0_7=pairs_above_0_7,
        dead_latents=int((fired == 0).sum()),
        tokens_per_second=tokens_per_second,
    )
