"""Whether an SAE is fit to be published: its files, and what plain SAELens makes of them."""

import json
from pathlib import Path
from typing import Any

from sae_lens import BatchTopKTrainingSAE
from sae_lens.registry import SAE_CLASS_REGISTRY, SAE_TRAINING_CLASS_REGISTRY

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.local.collect import LocalSAE
from sae_lens_c2r.hub.local.leaks import refuse_secrets
from sae_lens_c2r.hub.local.record import read_object
from sae_lens_c2r.hub.local.weights_file import TensorInFile, WeightsFile


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
    if not isinstance(architecture, str) or architecture not in SAE_CLASS_REGISTRY:
        raise UserError(
            f"{sae.config}: `architecture` should be one that SAELens loads. "
            f"Found {architecture}."
        )
    weights = WeightsFile.open(sae.weights)
    if weights.metadata not in ({}, {"format": "pt"}):
        refuse_secrets(sae.weights, json.dumps(weights.metadata, ensure_ascii=False))
        raise UserError(
            f"{sae.weights} should have no metadata in its header, which would be published. "
            f"Found {', '.join(weights.metadata)}."
        )
    d_in, d_sae = (_positive(config, key, sae.config) for key in ("d_in", "d_sae"))
    metadata = config.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    d_out = metadata.get("d_out") or config.get("d_out") or d_in
    shapes = {
        "W_enc": (d_in, d_sae),
        "W_dec": (d_sae, d_out),
        "b_dec": (d_out,),
        "b_enc": (d_sae,),
        "threshold": (d_sae,),
    }
    for name in ("W_enc", "W_dec"):
        exempt = name == "W_enc" and architecture == "matching_pursuit"
        if name not in weights.tensors and not exempt:
            raise UserError(f"{sae.weights} should have `{name}`.")
    learned = _learns_threshold(metadata.get("training_architecture"))
    for tensor in weights.tensors.values():
        _check_tensor(weights, tensor, shapes.get(tensor.name), learned=learned)
    return weights


def _check_tensor(
    weights: WeightsFile, tensor: TensorInFile, shape: tuple[int, ...] | None, *, learned: bool
) -> None:
    """Raise unless a tensor has its shape, and numbers that make sense."""
    if shape is not None and tensor.shape != shape:
        raise UserError(
            f"{weights.path}: `{tensor.name}` should have the shape {shape}, as the "
            f"config says. Found {tensor.shape}."
        )
    largest = 0.0
    for piece in weights.pieces(tensor):
        if not piece.isfinite().all():
            raise UserError(
                f"{weights.path}: `{tensor.name}` should be finite. Found NaN or infinity."
            )
        if tensor.name == "threshold" and (piece < 0).any():
            raise UserError(f"{weights.path}: `threshold` should not be negative.")
        largest = max(largest, piece.abs().max().item())
    if tensor.name == "W_dec" and largest == 0:
        raise UserError(f"{weights.path}: `W_dec` should not be 0 everywhere.")
    if tensor.name == "threshold" and largest == 0 and learned:
        raise UserError(
            f"{weights.path}: `threshold` should have been learned. It is 0 everywhere."
        )


def _learns_threshold(architecture: object) -> bool:
    """Whether an SAE is of the BatchTopK family, whose threshold is learned."""
    if not isinstance(architecture, str) or architecture not in SAE_TRAINING_CLASS_REGISTRY:
        return False
    return issubclass(SAE_TRAINING_CLASS_REGISTRY[architecture][0], BatchTopKTrainingSAE)


def _positive(config: dict[str, Any], key: str, path: Path) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"{path}: `{key}` should be a positive whole number. Found {value}.")
    return value
