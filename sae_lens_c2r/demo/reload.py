"""Proof that a saved SAE needs nothing of ours: another process loads it with SAELens alone."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from jaxtyping import Float
from sae_lens import BatchTopKTrainingSAE
from safetensors.torch import load_file, save_file
from torch import Tensor

from sae_lens_c2r.demo.settings import DemoError

_SCRIPT = Path(__file__).with_name("load_without_us.py")
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
        DemoError: If it does not load, or encodes otherwise than `sae` with its threshold.
    """
    found = encode_without_us(folder, inputs)
    with torch.no_grad():
        _, hidden_pre = sae.encode_with_hidden_pre(inputs.to(sae.device))
    hidden_pre, threshold = hidden_pre.cpu(), sae.topk_threshold.cpu()
    expected = torch.where(hidden_pre > threshold, hidden_pre.relu(), 0.0)

    if not (hidden_pre.isfinite().all() and found.isfinite().all()):
        raise DemoError(f"The SAE in {folder} has activations that are not finite numbers.")
    tolerance = _ROUNDING * hidden_pre.abs().max()
    # Rounding may put an activation that equals the threshold on either side of it.
    decided = (hidden_pre - threshold).abs() > tolerance
    if not torch.allclose(found[decided], expected[decided], rtol=0, atol=tolerance.item()):
        raise DemoError(f"The SAE in {folder} does not encode as the trained one does.")


def encode_without_us(
    folder: Path, inputs: Float[Tensor, "tokens d_in"]
) -> Float[Tensor, "tokens d_sae"]:
    """Encode with a saved SAE in a process that has SAELens and cannot import this package.

    Args:
        folder: The saved SAE.
        inputs: Activations to encode.

    Returns:
        The feature activations.

    Raises:
        DemoError: If SAELens alone cannot load it.
    """
    with TemporaryDirectory() as scratch:
        sae_in, feature_acts = Path(scratch, "in.safetensors"), Path(scratch, "out.safetensors")
        save_file({"sae_in": inputs.cpu().contiguous()}, sae_in)
        process = subprocess.run(
            [sys.executable, str(_SCRIPT), str(folder), str(sae_in), str(feature_acts)],
            # PyTorch would refuse to start without the package that an entry point names.
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            capture_output=True,
            text=True,
        )
        if process.returncode != 0:
            raise DemoError(f"SAELens alone cannot load {folder}:\n{process.stderr}")
        return load_file(feature_acts)["feature_acts"]
