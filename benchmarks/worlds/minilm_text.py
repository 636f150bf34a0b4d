"""A real model's activations, and what can be measured where no feature is known."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sae_lens import SAE
from sae_lens.evals import ExplainedVarianceCalculator
from torch import Tensor

from benchmarks.experiment import (
    Drawn,
    Row,
    Run,
    World,
    make_once,
    read_sizes,
    size_of,
)
from benchmarks.report import between_table, draw_schedules, of_full_length
from sae_lens_c2r.analysis import CoFiring, chance_composition, co_firing, composition

BATCH = 4096
ALIKE = 0.5  # the Jaccard above which two latents fire together
SIZES = read_sizes(Path(__file__))
MAIN, FLOAT32 = "minilm-text", "minilm-text-float32"
D_IN, HOOK_NAME = 384, "bert.encoder.layer.3"  # of the demo


def text_activations(n_training: int, n_held_out: int) -> tuple[Tensor, Tensor]:
    """Run the demo's transformer over its text, and return activations of both parts of it."""
    from sae_lens.load_model import load_model
    from transformers import AutoTokenizer

    from sae_lens_c2r.offline import corpus
    from sae_lens_c2r.offline.models import CLS, PAD, SEP, model_folder

    folder = str(model_folder())
    model = load_model("AutoModelForCausalLM", folder, device="cpu", hook_names=[HOOK_NAME])
    tokenizer = AutoTokenizer.from_pretrained(folder)

    @torch.no_grad()
    def activations_of(rows: Tensor, at_most: int) -> Tensor:
        batches, n_tokens = [], 0
        for batch in rows.split(32):
            # Naming a layer to stop at has SAELens's wrapper stop at the hook.
            _, cache = model.run_with_cache(batch, names_filter=[HOOK_NAME], stop_at_layer=-1)
            batches.append(cache[HOOK_NAME][~torch.isin(batch, torch.tensor([PAD, CLS, SEP]))])
            n_tokens += len(batches[-1])
            if n_tokens >= at_most:
                break
        return torch.cat(batches)[:at_most].clone()

    training, held_out = corpus.split(corpus.documents(), held_out_share=0.1, seed=0)
    return (
        activations_of(corpus.token_rows(training, tokenizer), n_training),
        activations_of(corpus.token_rows(held_out, tokenizer), n_held_out),
    )


class MiniLMText(World):
    """The demo's activations, scaled to a mean norm of √d_in, as they are kept on disk."""

    d_in, d_sae, kept_in = D_IN, 2048, "minilm"

    def __init__(self, run: Run, data: Path, device: str = "cpu") -> None:
        self.run, self.size, self.device = run, size_of(run.world), device
        self.folder = data / f"{self.kept_in}-{self.size.pool}"
        self.text, self.held_out = self.folder / "text.npy", self.folder / "held_out.npy"
        self.pools = [self.text]

    def prepare(self) -> None:
        """Collect the activations, unless that was done before."""
        make_once(self.text, self._collect)

    def _collect(self, path: Path) -> None:
        text, held_out = text_activations(self.size.pool, self.size.evaluation)
        scale = D_IN**0.5 / text.norm(dim=1).mean()
        np.save(self.held_out, (scale * held_out).numpy())
        np.save(path, (scale * text).numpy())

    def evaluate(self, sae: SAE[Any]) -> Row:
        """Measure what can be where no feature is known, on text that no SAE has seen."""
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
    }


def draw(rows: pd.DataFrame) -> Drawn:
    """Draw the sizes, and what float32 comes to less bfloat16."""
    drawn, [size], [in_float32] = draw_schedules(rows, SIZES), SIZES[MAIN], SIZES[FLOAT32]
    if in_float32.name in drawn.tables:
        of_length = rows[(rows.world == size.world) & (rows.samples == in_float32.samples)]
        table = between_table(of_full_length(rows, in_float32), of_length)
        drawn.tables[in_float32.name]["less bfloat16"] = table
    return drawn


open_world = MiniLMText
