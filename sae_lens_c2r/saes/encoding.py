"""Comparing forms of one SAE by what they encode: as trained, saved, and loaded elsewhere."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from sae_lens import SAE, TrainingSAE
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from sae_lens_c2r._support.errors import UserError

_SCRIPT = Path(__file__).with_name("encode_alone.py")
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


@dataclass(frozen=True)
class Encoded:
    """The outcome for an SAE.

    Args:
        feature_acts: What it encodes the inputs as, shape ``[batch, d_sae]``.
        sha256: Of the files that it was loaded from, by their names.
    """

    feature_acts: Tensor
    sha256: dict[str, str]


def encode_in_saelens_alone(
    requests: Sequence[tuple[Mapping[str, str], Tensor]],
    *,
    environment: Mapping[str, str] | None = None,
) -> list[Encoded]:
    """Load SAEs in another process, with SAELens alone, and encode a batch with each."""
    with TemporaryDirectory() as scratch:
        asked = []
        for number, (where, inputs) in enumerate(requests):
            files = {
                "inputs": str(Path(scratch, f"{number}-in.safetensors")),
                "outputs": str(Path(scratch, f"{number}-out.safetensors")),
            }
            save_file({"sae_in": inputs.cpu().contiguous()}, files["inputs"])
            asked.append({**where, **files})
        path = Path(scratch, "requests.json")
        path.write_text(json.dumps(asked), encoding="utf-8")
        process = subprocess.run(
            [sys.executable, str(_SCRIPT), str(path)],
            # PyTorch would refuse to start without the package that an entry point names.
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **(environment or {})},
            capture_output=True,
            text=True,
        )
        if process.returncode != 0:
            reason = process.stderr.strip().splitlines()[-1:] or ["It ended without a word."]
            done = sum(Path(request["outputs"]).is_file() for request in asked)
            where = {k: v for k, v in asked[done].items() if k not in ("inputs", "outputs")}
            raise UserError(
                f"SAELens alone does not load {' '.join(where.values())}. {reason[0]}"
            )
        return [_read(request["outputs"]) for request in asked]


def _read(path: str) -> Encoded:
    with safe_open(path, framework="pt") as file:
        return Encoded(file.get_tensor("feature_acts").clone(), dict(file.metadata()))
