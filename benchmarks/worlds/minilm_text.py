"""A real model's activations, and what can be measured where no feature is known."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sae_lens import SAE
from sae_lens.evals import ExplainedVarianceCalculator
from sae_lens.load_model import load_model
from torch import Tensor

from benchmarks.experiment import Drawn, Row, Run, World, read_sizes
from benchmarks.report import between_table, draw_schedules, of_full_length
from sae_lens_c2r.analysis import CoFiring, chance_composition, co_firing, composition
from sae_lens_c2r.models.offline import (
    CLS,
    MINILM,
    PAD,
    SEP,
    OfflineModel,
    documents,
    model_folder,
    token_rows,
)

BATCH = 4096
ALIKE = 0.5  # the Jaccard above which two latents fire together
SIZES = read_sizes(Path(__file__))
MAIN, FLOAT32 = "minilm-text", "minilm-text-float32"
D_IN, HOOK_NAME = 384, "bert.encoder.layer.3"


def load(offline: OfflineModel, hook_name: str, device: str = "cpu", **options: Any) -> Any:
    """Load a model with a hook at one place, by SAELens."""
    folder = str(model_folder(offline))
    return load_model("AutoModelForCausalLM", folder, device, options, [hook_name])


@torch.no_grad()
def activations(model: Any, rows: Tensor) -> Tensor:
    """Return activations at a model's hook, shape ``[rows, tokens, d_in]``."""
    hook_names = list(model.hook_dict)
    # Naming a layer to stop at has SAELens's wrapper stop at the hook.
    _, cache = model.run_with_cache(
        rows.to(next(model.parameters()).device), names_filter=hook_names, stop_at_layer=-1
    )
    return cache[hook_names[0]].float()


def text_activations(n_training: int, n_held_out: int) -> tuple[Tensor, Tensor]:
    """Run MiniLM over Python's documentation, and return activations of both parts of it."""
    model = load(MINILM, HOOK_NAME)

    def activations_of(texts: Sequence[str], at_most: int) -> Tensor:
        batches, n_tokens = [], 0
        for rows in torch.tensor(list(token_rows(texts, model.tokenizer))).split(32):
            special = torch.isin(rows, torch.tensor([PAD, CLS, SEP]))
            batches.append(activations(model, rows)[~special])
            n_tokens += len(batches[-1])
            if n_tokens >= at_most:
                break
        return torch.cat(batches)[:at_most].clone()

    texts = documents()
    shuffled = random.Random(0).sample(texts, len(texts))
    n_held_out = round(0.1 * len(texts))
    training, held_out = shuffled[n_held_out:], shuffled[:n_held_out]
    return activations_of(training, n_training), activations_of(held_out, n_held_out)


class MiniLMText(World):
    """MiniLM's activations, scaled to a mean norm of √d_in, as they are kept on disk."""

    d_in, d_sae, kept_in = D_IN, 2048, "minilm"

    def __init__(self, run: Run, data: Path, device: str) -> None:
        super().__init__(run, data, device)
        self.folder = data / f"{self.kept_in}-{self.size.pool}"
        self.text, self.held_out = self.folder / "text.npy", self.folder / "held_out.npy"
        self.pools = [self.text]

    def draw_shared(self, folder: Path) -> None:
        text, held_out = text_activations(self.size.pool, self.size.evaluation)
        scale = D_IN**0.5 / text.norm(dim=1).mean()
        np.save(folder / self.held_out.name, (scale * held_out).numpy())
        np.save(folder / self.text.name, (scale * text).numpy())

    def evaluate(self, sae: SAE[Any]) -> Row:
        inputs = torch.from_numpy(np.load(self.held_out)).float()
        return text_measures(sae, inputs.to(self.device))


@torch.no_grad()
def text_measures(sae: SAE[Any], inputs: Tensor) -> Row:
    """Return what can be measured where no feature is known."""
    together = co_firing(sae.encode(batch).to_sparse() for batch in inputs.split(BATCH))
    alike = (together.highest > ALIKE).sum().item()
    return {
        "explained_variance": explained_variance(sae, inputs),
        **firing_measures(sae, together),
        "composition_of_live": composition(sae.W_dec[together.times_fired > 0]),
        "firing_with_another": alike / max(together.live, 1),
    }


def explained_variance(sae: SAE[Any], inputs: Tensor) -> float:
    """Return the explained variance of some inputs."""
    found = ExplainedVarianceCalculator()
    for batch in inputs.split(BATCH):
        found.add_batch(sae(batch), batch)
    return found.compute()


def firing_measures(sae: SAE[Any], together: CoFiring) -> Row:
    """Return what any SAE has: how latents fire, and how alike they are."""
    return {
        "l0": together.times_fired.sum().item() / together.n_tokens,
        "dead_latents": 1 - together.live / len(sae.W_dec),
        "composition": composition(sae.W_dec),
        "chance_composition": chance_composition(*sae.W_dec.shape),
        "highest_jaccard": together.mean,
        "firing_pairs_above_0.9": together.pairs[0.9],
    }


def draw(rows: pd.DataFrame) -> Drawn:
    drawn, [size], [in_float32] = draw_schedules(rows, SIZES), SIZES[MAIN], SIZES[FLOAT32]
    if in_float32.name in drawn.tables:
        of_length = rows[(rows.world == size.world) & (rows.samples == in_float32.samples)]
        table = between_table(of_full_length(rows, in_float32), of_length)
        drawn.tables[in_float32.name]["less bfloat16"] = table
    return drawn


open_world = MiniLMText
