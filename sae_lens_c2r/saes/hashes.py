"""Hashes of what an SAE computes, to which measurements of it belong."""

import json
from dataclasses import fields
from hashlib import sha256
from typing import Any

import torch
from sae_lens import SAE

# Of an SAE's metadata, what decides how text is read, and which activations an SAE is given.
READING = (
    *("model_class_name", "model_from_pretrained_kwargs", "prepend_bos", "seqpos_slice"),
    *("exclude_special_tokens", "sequence_separator_token", "disable_concat_sequences"),
)
_READ = (*READING, "hook_name", "hook_head_index", "dataset_path", "context_size")


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


def earlier_config_hash(sae: SAE[Any]) -> str:
    """Hash a config as before, with all that its metadata say: older files have that."""
    config = sae.cfg.to_dict()
    config.pop("device", None)
    config["metadata"].pop("sae_lens_version", None)
    return digest_of(config)


def digest_of(content: dict[str, Any]) -> str:
    """Hash JSON, whatever the order of its keys."""
    return sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
