"""Hashes of weights, configs and files: an evaluation of the same ones is not run again."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.utils.sha import sha_fileobj
from sae_lens import SAE, SAEConfig


def weights_sha256(sae: SAE[Any]) -> str:
    """Hash the names, types, shapes and bytes of weights, whatever file they come from."""
    digest = sha256()
    for name, tensor in sorted(sae.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def config_sha256(cfg: SAEConfig) -> str:
    """Hash a config without the device it was loaded to and the version that loaded it."""
    config = dict(cfg.to_dict())
    config["metadata"] = dict(config.get("metadata") or {})
    config.pop("device", None)
    config["metadata"].pop("sae_lens_version", None)
    return sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()


def fingerprint(path: Path) -> str:
    """Hash the content of a file, or the names, sizes and times of a folder's files."""
    if path.is_file():
        with path.open("rb") as file:
            return sha_fileobj(file).hex()
    digest = sha256()
    for inside in sorted(path.rglob("*")):
        if inside.is_file():
            stat = inside.stat()
            digest.update(
                f"{inside.relative_to(path)} {stat.st_size} {stat.st_mtime_ns}\n".encode()
            )
    return digest.hexdigest()
