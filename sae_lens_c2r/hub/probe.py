"""The batch by which forms of one SAE are compared: what was trained, is saved, comes back."""

from typing import Any

import torch
from sae_lens import SAE, TrainingSAE
from safetensors import safe_open
from torch import Tensor

from sae_lens_c2r.hub.weights_file import WeightsFile

_ROWS = 64
_SCALES = 14  # decoder rows of lengths 1 to 2 ** 13: some latents fire, whatever the threshold
_TOLERANCE = 1e-3
_ROWS_ON_THE_EDGE = 3  # rounding may put an activation at its threshold on either side


def probe_inputs(weights: WeightsFile) -> Tensor:
    """A batch that an SAE surely has something to say to: some of its own decoder's rows.

    Args:
        weights: The SAE's, of which only those rows are read.

    Returns:
        Inputs, shape ``[64, d_in]``: ``b_dec`` and evenly spaced unit rows, of lengths that
        are powers of 2.
    """
    with safe_open(weights.path, framework="pt") as file:
        rows = file.get_slice("W_dec")
        d_sae, d_in = rows.get_shape()
        latents = torch.linspace(0, d_sae - 1, _ROWS).long().tolist()
        directions = torch.stack([rows[i].float() for i in latents])
        b_dec = torch.zeros(d_in)
        if "b_dec" in weights.tensors:
            b_dec = file.get_tensor("b_dec").float()
    lengths = 2.0 ** (torch.arange(_ROWS) % _SCALES)
    return b_dec + lengths[:, None] * torch.nn.functional.normalize(directions, dim=1)


@torch.no_grad()
def trained_contributions(sae: TrainingSAE[Any], inputs: Tensor) -> Tensor:
    """What a training SAE encodes inputs as, once it is used and no longer trained.

    Args:
        sae: The SAE. One of the BatchTopK family ranks a batch while it is trained, and has
            learned a threshold to use instead.
        inputs: The inputs, shape ``[batch, d_in]``.

    Returns:
        Each latent's activation in units of unit decoder rows, shape ``[batch, d_sae]``: they
        are the same before and after SAELens folds the rows' norms.
    """
    feature_acts, hidden_pre = sae.encode_with_hidden_pre(inputs.to(sae.device, sae.dtype))
    threshold = getattr(sae, "topk_threshold", None)
    if threshold is not None:
        fires = hidden_pre > threshold
        feature_acts = torch.where(fires, hidden_pre.relu(), torch.zeros_like(hidden_pre))
    if not getattr(sae.cfg, "rescale_acts_by_decoder_norm", False):
        feature_acts = feature_acts * sae.W_dec.norm(dim=-1)
    return feature_acts.float().cpu()


@torch.no_grad()
def contributions(feature_acts: Tensor, sae: SAE[Any]) -> Tensor:
    """The same of an SAE in its inference form.

    Args:
        feature_acts: What it encodes inputs as, shape ``[batch, d_sae]``.
        sae: The SAE.

    Returns:
        Each latent's activation in units of unit decoder rows.
    """
    if getattr(sae.cfg, "rescale_acts_by_decoder_norm", False):
        return feature_acts.float()
    return feature_acts.float() * sae.W_dec.norm(dim=-1).float().cpu()


def agree(found: Tensor, expected: Tensor) -> bool:
    """Whether two encodings of a probe batch are of the same SAE.

    Args:
        found: One, shape ``[batch, d_sae]``.
        expected: The other.

    Returns:
        Whether all rows but very few are equal up to rounding.
    """
    if found.shape != expected.shape:
        return False
    found, expected = found.float(), expected.float()
    differ = (found - expected).norm(dim=1) > _TOLERANCE * expected.norm(dim=1)
    return int(differ.sum()) <= _ROWS_ON_THE_EDGE
