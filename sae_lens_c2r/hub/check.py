"""Whether an SAE is fit to be published: its files, and what plain SAELens makes of them."""

import json
from pathlib import Path
from typing import Any

from sae_lens.registry import SAE_CLASS_REGISTRY

from sae_lens_c2r.errors import UserError
from sae_lens_c2r.hub.collect import LocalSAE
from sae_lens_c2r.hub.record import read_object
from sae_lens_c2r.hub.redact import refuse_secrets
from sae_lens_c2r.hub.weights_file import WeightsFile


def check(sae: LocalSAE) -> WeightsFile:
    """Check an SAE's files without loading them.

    Args:
        sae: The SAE.

    Returns:
        Its weights.

    Raises:
        UserError: If its config or its weights are not those of an SAE of SAELens's, or seem
            to hold a secret.
    """
    config = read_object(sae.config)
    architecture = config.get("architecture")
    if architecture not in SAE_CLASS_REGISTRY:
        raise UserError(
            f"{sae.config}: `architecture` should be one that SAELens loads. "
            f"Found {architecture}."
        )
    weights = WeightsFile.open(sae.weights)
    refuse_secrets(sae.weights, json.dumps(weights.metadata, ensure_ascii=False))
    d_in, d_sae = (_positive(config, key, sae.config) for key in ("d_in", "d_sae"))
    shapes = {
        "W_enc": (d_in, d_sae),
        "W_dec": (d_sae, d_in),
        "b_dec": (d_in,),
        "b_enc": (d_sae,),
        "threshold": (d_sae,),
    }
    for name in ("W_enc", "W_dec"):
        if name not in weights.tensors and architecture != "matching_pursuit":
            raise UserError(f"{sae.weights} should have `{name}`.")
    for tensor in weights.tensors.values():
        expected = shapes.get(tensor.name, tensor.shape)
        if tensor.shape != expected:
            raise UserError(
                f"{sae.weights}: `{tensor.name}` should have the shape {expected}, as the "
                f"config says. Found {tensor.shape}."
            )
        largest = 0.0
        for piece in weights.pieces(tensor):
            if not piece.isfinite().all():
                raise UserError(
                    f"{sae.weights}: `{tensor.name}` should be finite. Found NaN or infinity."
                )
            if tensor.name == "threshold" and (piece < 0).any():
                raise UserError(f"{sae.weights}: `threshold` should not be negative.")
            largest = max(largest, piece.abs().max().item())
        if tensor.name == "W_dec" and largest == 0:
            raise UserError(f"{sae.weights}: `W_dec` should not be 0 everywhere.")
    return weights


def _positive(config: dict[str, Any], key: str, path: Path) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"{path}: `{key}` should be a positive whole number. Found {value}.")
    return value
