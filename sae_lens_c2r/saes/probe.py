"""The batch by which forms of one SAE are compared: what was trained, is saved, comes back."""

import copy
from pathlib import Path
from typing import Any

import torch
from sae_lens import SAE, TrainingSAE
from safetensors import safe_open
from torch import Tensor

_ROWS = 64
_SCALES = 14  # decoder rows of lengths 1 to 2 ** 13: some latents fire, whatever the threshold
# How far rows may be from each other, relative to their norms, and how many may be farther:
# rounding may put an activation at its threshold on either side. Folding the decoder's norms
# rounds once more, which in 16 bits is coarse.
_TOLERANCE = {torch.float32: (1e-3, 3), torch.float64: (1e-3, 3)}
_COARSE = (0.1, 16)


def probe_inputs(weights: Path) -> Tensor:
    """A batch that an SAE surely has something to say to: some of its own decoder's rows."""
    with safe_open(weights, framework="pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        rows = file.get_slice("W_dec")
        d_sae, d_out = shapes["W_dec"]
        latents = torch.linspace(0, d_sae - 1, _ROWS).long().tolist()
        directions = torch.stack([rows[i].float() for i in latents])
        if "W_enc" in shapes and shapes["W_enc"][0] != d_out:
            columns = file.get_slice("W_enc")  # of a transcoder, which has two spaces
            directions = torch.stack([columns[:, i].float() for i in latents])
        b_dec = torch.zeros(directions.shape[1])
        if shapes.get("b_dec") == list(b_dec.shape):
            b_dec = file.get_tensor("b_dec").float()
    lengths = 2.0 ** (torch.arange(_ROWS) % _SCALES)
    return b_dec + lengths[:, None] * torch.nn.functional.normalize(directions, dim=1)


@torch.no_grad()
def trained_contributions(sae: TrainingSAE[Any], inputs: Tensor) -> Tensor:
    """Activations of a training SAE, once it is used and no longer trained."""
    # One of the BatchTopK family ranks a batch in training, and uses a threshold after it.
    if sae.dtype != torch.float32:  # as the inference form is, and without overflow
        sae = copy.deepcopy(sae).to(torch.float32)
    feature_acts, hidden_pre = sae.encode_with_hidden_pre(inputs.to(sae.device))
    threshold = getattr(sae, "topk_threshold", None)
    if threshold is not None:
        fires = hidden_pre > threshold
        feature_acts = torch.where(fires, hidden_pre.relu(), torch.zeros_like(hidden_pre))
    if not getattr(sae.cfg, "rescale_acts_by_decoder_norm", False):
        feature_acts = feature_acts * sae.W_dec.norm(dim=-1)
    return feature_acts.float().cpu()


@torch.no_grad()
def contributions(feature_acts: Tensor, sae: SAE[Any]) -> Tensor:
    """Activations of an inference form in the units of `trained_contributions`."""
    if getattr(sae.cfg, "rescale_acts_by_decoder_norm", False):
        return feature_acts.float()
    return feature_acts.float() * sae.W_dec.norm(dim=-1).float().cpu()


def encodes_alike(
    found: Tensor, expected: Tensor, *, dtype: torch.dtype = torch.float32
) -> bool:
    """Whether two encodings of a probe agree, but for rounding to `dtype` and very few rows."""
    if found.shape != expected.shape:
        return False
    tolerance, farther = _TOLERANCE.get(dtype, _COARSE)
    # A row with NaN agrees with none.
    equal = (found - expected).norm(dim=1) <= tolerance * expected.norm(dim=1)
    return int((~equal).sum()) <= farther
