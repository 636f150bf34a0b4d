"""The demo's activations, with nothing planted into them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sae_lens import SAE
from sae_lens.evals import ExplainedVarianceCalculator
from torch import Tensor

from benchmarks.minilm import D_IN, text_activations
from benchmarks.synth_sae_bench.world import BATCH, Size, shuffled
from sae_lens_c2r.analysis import chance_composition, co_firing, composition

D_SAE = 2048
ALIKE = 0.5  # the Jaccard above which two latents fire together


class World:
    """The activations, as they are kept on disk.

    Args:
        size: How much of them.
        folder: Where they are kept, and made where they are missing.
        device: Where SAEs are evaluated.
    """

    d_in, d_sae = D_IN, D_SAE

    def __init__(self, size: Size, folder: Path, device: str = "cpu") -> None:
        self.size, self.device = size, device
        self.folder = folder / f"minilm-text-{size.pool}"
        self.text, self.held_out = self.folder / "text.npy", self.folder / "held_out.npy"

    def generate(self, processes: int) -> None:
        """Collect the activations, scaled to a mean norm of √d_in, unless that was done before.

        Args:
            processes: Threads for the transformer.
        """
        torch.set_num_threads(processes)
        if self.text.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        text, held_out = text_activations(self.size.pool, self.size.evaluation)
        scale = D_IN**0.5 / text.norm(dim=1).mean()
        np.save(self.held_out, (scale * held_out).numpy())
        partial = self.folder / "text.partial.npy"
        np.save(partial, (scale * text).numpy())
        partial.rename(self.text)

    def batches(self, seed: int, batch_size: int) -> Iterator[Tensor]:
        """The tokens for ever, as `shuffled` has them."""
        return shuffled(self.text, seed, batch_size)

    @torch.no_grad()
    def evaluate(self, sae: SAE[Any]) -> dict[str, Any]:
        """What can be measured where no feature is known, on text that no SAE has seen.

        Args:
            sae: The SAE, as anybody would load it.

        Returns:
            The measures by their names.
        """
        inputs = torch.from_numpy(np.load(self.held_out)).to(self.device)
        explained_variance, acts_of_all = ExplainedVarianceCalculator(), []
        for batch in inputs.split(BATCH):
            acts = sae.encode(batch)
            explained_variance.add_batch(sae.decode(acts), batch)
            acts_of_all.append(acts.to_sparse())
        together = co_firing(acts_of_all)
        return {
            "explained_variance": explained_variance.compute(),
            "l0": together.times_fired.sum().item() / together.n_tokens,
            "dead_latents": 1 - together.live / len(sae.W_dec),
            "composition": composition(sae.W_dec),
            "composition_of_live": composition(sae.W_dec[together.times_fired > 0]),
            "chance_composition": chance_composition(*sae.W_dec.shape),
            "highest_jaccard": together.mean,
            "firing_with_another": (together.highest > ALIKE).sum().item()
            / max(together.live, 1),
        }
