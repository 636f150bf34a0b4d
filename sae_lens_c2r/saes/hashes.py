"""Hashes of what an SAE computes, to which measurements of it belong."""

import json
from dataclasses import fields
from hashlib import sha256
from typing import Any

import torch
from sae_lens import SAE

from sae_lens_c2r.models.reading import ADDED, Reading

# What of SAELens's own metadata decides how text is read, but for the model's name.
_READ = tuple(key for key in Reading.model_fields if key not in {"model_name", *ADDED})


def sae_hashes(sae: SAE[Any]) -> tuple[str, str]:
    """Hash weights and what of the config decides the function and what it is measured on."""
    weights = sha256()
    for name, tensor in sorted(sae.state_dict().items()):
        weights.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        weights.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    # Defaults are left out: a later SAELens has more of them.
    usual = {field.name: field.default for field in fields(sae.cfg)}
    said = {"architecture": sae.cfg.architecture(), **sae.cfg.to_dict()}
    config = {key: said[key] for key in said.keys() - {"metadata", "device"}}
    config = {key: value for key, value in config.items() if usual.get(key, ...) != value}
    read = {key: value for key in _READ if (value := sae.cfg.metadata.get(key)) is not None}
    return weights.hexdigest(), digest_of({**config, "metadata": read})


def digest_of(content: dict[str, Any]) -> str:
    """Hash JSON, whatever the order of its keys."""
    return sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
