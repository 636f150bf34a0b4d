"""Proof that a saved SAE needs nothing of ours: another process loads it with SAELens alone."""

from pathlib import Path

import torch
from jaxtyping import Float
from sae_lens import BatchTopKTrainingSAE
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.saes.saelens_alone import encode_in_saelens_alone

_ROUNDING = 1e-4  # relative to the largest activation: saving folds the decoder's norms


def check_reload(
    sae: BatchTopKTrainingSAE, folder: Path, inputs: Float[Tensor, "tokens d_in"]
) -> None:
    """Load `folder` in a process without this package and compare what it encodes.

    Args:
        sae: The trained BatchTopK SAE.
        folder: Where its inference form was saved.
        inputs: Activations to encode.

    Raises:
        UserError: If it does not load, or encodes otherwise than `sae` with its threshold.
    """
    [encoded] = encode_in_saelens_alone([({"folder": str(folder)}, inputs)])
    found = encoded.feature_acts
    with torch.no_grad():
        _, hidden_pre = sae.encode_with_hidden_pre(inputs.to(sae.device))
    hidden_pre, threshold = hidden_pre.cpu(), sae.topk_threshold.cpu()
    expected = torch.where(hidden_pre > threshold, hidden_pre.relu(), 0.0)

    if not (hidden_pre.isfinite().all() and found.isfinite().all()):
        raise UserError(f"The SAE in {folder} has activations that are not finite numbers.")
    tolerance = _ROUNDING * hidden_pre.abs().max()
    # Rounding may put an activation that equals the threshold on either side of it.
    decided = (hidden_pre - threshold).abs() > tolerance
    if not torch.allclose(found[decided], expected[decided], rtol=0, atol=tolerance.item()):
        raise UserError(f"The SAE in {folder} does not encode as the trained one does.")
