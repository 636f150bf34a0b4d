"""What tells one thing from another: weights, configs, files."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.utils.sha import sha_fileobj
from sae_lens import SAE, SAEConfig


def weights_sha256(sae: SAE[Any]) -> str:
    """Which weights these are, whatever file they come from.

    Args:
        sae: The SAE, as of `SAERef.load_for_inference`.

    Returns:
        SHA-256 of the names, types, shapes and bytes of its weights.
    """
    digest = sha256()
    for name, tensor in sorted(sae.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def config_sha256(cfg: SAEConfig) -> str:
    """Which config this is.

    Returns:
        SHA-256 of its fields, without where it was loaded to and by which version.
    """
    config = dict(cfg.to_dict())
    config["metadata"] = dict(config.get("metadata") or {})
    config.pop("device", None)
    config["metadata"].pop("sae_lens_version", None)
    return sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()


def fingerprint(path: Path) -> str:
    """SHA-256 of a file's content; of the names, sizes and times of a folder's files."""
    if path.is_file():
        with path.open("rb") as file:
            return sha_fileobj(file).hex()
    digest = sha256()
    for inside in sorted(path.rglob("*")):
        if inside.is_file():
            about = inside.stat()
            digest.update(
                f"{inside.relative_to(path)} {about.st_size} {about.st_mtime_ns}\n".encode()
            )
    return digest.hexdigest()
