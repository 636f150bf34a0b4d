"""Comparing forms of one SAE by what they encode: as trained, saved, and loaded elsewhere."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from sae_lens import SAE, TrainingSAE
from safetensors.torch import load_file, save_file
from torch import Tensor

from sae_lens_c2r._support.errors import UserError

_SCRIPT = Path(__file__).with_name("encode_alone.py")
_ROWS = 64
_SCALES = 14  # decoder rows of lengths 1 to 2 ** 13: some latents fire, whatever the threshold
# How far rows may be from each other, relative to their norms, and how many may be farther:
# rounding may put an activation at its threshold on either side. Folding the decoder's norms
# rounds once more, which in 16 bits is coarse.
_FINE, _COARSE = (1e-3, 3), (0.1, 16)


@torch.no_grad()
def probe_inputs(sae: SAE[Any]) -> Tensor:
    """A batch on which latents of an SAE surely fire: some rows of its own decoder."""
    rows, W_enc = sae.W_dec, getattr(sae, "W_enc", None)
    if W_enc is not None and len(W_enc) != rows.shape[1]:
        rows = W_enc.T  # of a transcoder, which has two spaces
    directions = rows[torch.linspace(0, len(rows) - 1, _ROWS).long()].float()
    lengths = 2.0 ** (torch.arange(_ROWS) % _SCALES)
    b_dec = sae.b_dec.float() if sae.b_dec.shape == directions[0].shape else 0.0
    return b_dec + lengths[:, None] * torch.nn.functional.normalize(directions, dim=1)


@torch.no_grad()
def contributions_here(sae: SAE[Any], inputs: Tensor) -> Tensor:
    """The `contributions` of an SAE as it is in memory, used and no longer trained."""
    if sae.dtype != torch.float32:  # as it is loaded elsewhere, and without overflow
        sae = copy.deepcopy(sae).to(torch.float32)
    if not isinstance(sae, TrainingSAE):
        sae.turn_off_forward_pass_hook_z_reshaping()  # type: ignore[no-untyped-call]
        return contributions(sae.encode(inputs.to(sae.device)), sae)
    feature_acts, hidden_pre = sae.encode_with_hidden_pre(inputs.to(sae.device))
    # One of the BatchTopK family ranks a batch in training, and uses a threshold after it.
    threshold = getattr(sae, "topk_threshold", None)
    if threshold is not None:
        feature_acts = hidden_pre.relu() * (hidden_pre > threshold)
    return contributions(feature_acts, sae)


@torch.no_grad()
def contributions(feature_acts: Tensor, sae: SAE[Any]) -> Tensor:
    """Activations in units of unit decoder rows, which differ from form to form."""
    if not getattr(sae.cfg, "rescale_acts_by_decoder_norm", False):
        feature_acts = feature_acts * sae.W_dec.norm(dim=-1).to(feature_acts.device)
    return feature_acts.float().cpu()


def encodes_alike(
    found: Tensor, expected: Tensor, *, dtype: torch.dtype = torch.float32
) -> bool:
    """Whether two encodings of a probe agree, but for rounding to `dtype` and very few rows."""
    if found.shape != expected.shape:
        return False
    tolerance, farther = _COARSE if dtype.itemsize < 4 else _FINE
    # A row with NaN agrees with none.
    equal = (found - expected).norm(dim=1) <= tolerance * expected.norm(dim=1)
    return int((~equal).sum()) <= farther


def encode_in_saelens_alone(requests: Sequence[tuple[Path, Tensor]]) -> list[Tensor]:
    """Load the SAEs of folders in another process, with SAELens alone, and encode batches."""
    with TemporaryDirectory() as scratch:
        asked = []
        for number, (folder, inputs) in enumerate(requests):
            file = str(Path(scratch, f"{number}.safetensors"))
            save_file({"sae_in": inputs.cpu().contiguous()}, file)
            asked.append({"folder": str(folder), "inputs": file, "outputs": f"{file}.out"})
        run = subprocess.run(
            [sys.executable, str(_SCRIPT)],
            # PyTorch would refuse to start without the package that an entry point names.
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            input=json.dumps(asked).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if run.returncode != 0:
            told = run.stderr.decode(errors="replace").strip().splitlines()
            left = (each for each in asked if not Path(each["outputs"]).is_file())
            which = next(left, asked[-1])["folder"]
            reason = told[-1] if told else "It printed nothing."
            raise UserError(f"SAELens alone cannot load {which}. {reason}")
        # Cloned, as loaded tensors are views of files that are about to be removed.
        return [load_file(each["outputs"])["feature_acts"].clone() for each in asked]
