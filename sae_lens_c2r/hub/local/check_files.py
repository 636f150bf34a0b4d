"""Whether an SAE is fit to be published: its files, and what plain SAELens makes of them."""

import json
import math
from pathlib import Path
from typing import Any

from sae_lens import BatchTopKTrainingSAE
from sae_lens.registry import SAE_CLASS_REGISTRY, SAE_TRAINING_CLASS_REGISTRY
from safetensors import SafetensorError, safe_open

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r.hub.leaks import read_harmless, refuse_secrets
from sae_lens_c2r.hub.local.collect import LocalSAE

_TYPES = ("F64", "F32", "F16", "BF16")


def check_files(sae: LocalSAE) -> dict[str, Any]:
    """The config of an SAE whose files are fit for the Hub; tensors are loaded one by one."""
    config = read_harmless(sae.config)
    architecture = config.get("architecture")
    if not isinstance(architecture, str) or architecture not in SAE_CLASS_REGISTRY:
        raise UserError(
            f"{sae.config}: `architecture` should be one that SAELens loads. "
            f"Found {architecture}."
        )
    shapes = _shapes(config, sae.config)
    try:
        with safe_open(sae.weights, framework="pt") as file:
            _check_weights(file, sae.weights, config, shapes)
    except (OSError, SafetensorError) as error:
        reason = one_line(error)
        raise UserError(f"{sae.weights} should be a safetensors file. {reason}") from None
    return config


def _check_weights(
    file: Any, path: Path, config: dict[str, Any], shapes: dict[str, list[int]]
) -> None:
    metadata = file.metadata() or {}
    if metadata not in ({}, {"format": "pt"}):
        refuse_secrets(path, json.dumps(metadata, ensure_ascii=False))
        raise UserError(
            f"{path} should have no metadata in its header, which would be published. "
            f"Found {', '.join(metadata)}."
        )
    needed = {"W_dec"} if config["architecture"] == "matching_pursuit" else {"W_enc", "W_dec"}
    for missing in sorted(needed - set(file.keys())):
        raise UserError(f"{path} should have `{missing}`.")
    for name in file.keys():  # noqa: SIM118  # it is no mapping
        _check_header(file.get_slice(name), f"{path}: `{name}`", shapes.get(name))
        if math.prod(file.get_slice(name).get_shape()):
            _check_numbers(file, path, name, learned=_learns_threshold(config))


def _check_header(header: Any, tensor: str, shape: list[int] | None) -> None:
    """Raise unless a tensor has its shape, and a type of weights."""
    if header.get_dtype() not in _TYPES:
        raise UserError(
            f"{tensor} should be of one of {', '.join(_TYPES)}. Found {header.get_dtype()}."
        )
    if shape is not None and header.get_shape() != shape:
        raise UserError(
            f"{tensor} should have the shape {tuple(shape)}, as the config says. "
            f"Found {tuple(header.get_shape())}."
        )


def _check_numbers(file: Any, path: Path, name: str, *, learned: bool) -> None:
    """Raise unless a tensor has numbers that make sense."""
    low, high = (number.item() for number in file.get_tensor(name).aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):  # NaN is both of any that has one
        raise UserError(f"{path}: `{name}` should be finite. Found NaN or infinity.")
    if name == "threshold" and low < 0:
        raise UserError(f"{path}: `threshold` should not be negative.")
    if name == "W_dec" and low == high == 0:
        raise UserError(f"{path}: `W_dec` should not be 0 everywhere.")
    if name == "threshold" and high == 0 and learned:
        raise UserError(f"{path}: `threshold` should have been learned. It is 0 everywhere.")


def _shapes(config: dict[str, Any], path: Path) -> dict[str, list[int]]:
    """The shapes that a config says."""
    for key in ("d_in", "d_sae"):
        value = config.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(
                f"{path}: `{key}` should be a positive whole number. Found {value}."
            )
    d_in, d_sae = config["d_in"], config["d_sae"]
    d_out = _metadata(config).get("d_out") or config.get("d_out") or d_in
    vectors = {"b_dec": [d_out], "b_enc": [d_sae], "threshold": [d_sae]}
    return {"W_enc": [d_in, d_sae], "W_dec": [d_sae, d_out], **vectors}


def _learns_threshold(config: dict[str, Any]) -> bool:
    """Whether an SAE is of the BatchTopK family, whose threshold is learned."""
    architecture = _metadata(config).get("training_architecture")
    if not isinstance(architecture, str) or architecture not in SAE_TRAINING_CLASS_REGISTRY:
        return False
    return issubclass(SAE_TRAINING_CLASS_REGISTRY[architecture][0], BatchTopKTrainingSAE)


def _metadata(config: dict[str, Any]) -> dict[str, Any]:
    metadata = config.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
