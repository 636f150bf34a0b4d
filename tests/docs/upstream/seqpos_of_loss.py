"""SAELens measures the loss with activations replaced where `seqpos_slice` left them out.

Proposal: in `get_recons_loss`, replace those at `sae.cfg.metadata.seqpos_slice` only.
"""

from typing import Any

import torch
from sae_lens import StandardSAE, StandardSAEConfig
from sae_lens.evals import get_recons_loss
from sae_lens.saes.sae import SAEMetadata
from sae_lens.training.activation_scaler import ActivationScaler

replaced = []


class Model:
    """Shows its activations, all ones, to hooks."""

    def __call__(self, tokens: torch.Tensor, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(*tokens.shape, 2), torch.zeros(tokens.shape)

    def run_with_hooks(self, tokens: torch.Tensor, fwd_hooks: Any, **_: Any) -> Any:
        replaced.append(fwd_hooks[0][1](torch.ones(*tokens.shape, 4), hook=None))
        return self(tokens)


metadata = SAEMetadata(hook_name="hook", seqpos_slice=(1, None))
sae = StandardSAE(StandardSAEConfig(d_in=4, d_sae=8, metadata=metadata))
tokens = torch.zeros(1, 3, dtype=torch.long)
get_recons_loss(sae, Model(), ActivationScaler(), tokens, False, False)
assert (replaced[0][:, 0] != 1).any(), "SAELens has mended this."
