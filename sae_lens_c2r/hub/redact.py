"""What of an SAE's config leaves this machine: what is known to be harmless, and no more."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sae_lens.registry import SAE_CLASS_REGISTRY

from sae_lens_c2r.errors import UserError

# SAELens's own and ours, which say how to use an SAE and how it was trained.
METADATA = {
    *("sae_lens_version", "sae_lens_training_version", "training_architecture"),
    *("model_name", "model_class_name", "dataset_path", "neuronpedia_id"),
    *("hook_name", "hook_head_index", "context_size", "prepend_bos", "seqpos_slice"),
    *("exclude_special_tokens", "disable_concat_sequences", "sequence_separator_token"),
    *("c2r_effective_coefficient", "ort_effective_coefficient"),
    *("l0", "num_dead_features", "is_transcoder", "hook_name_out", "d_out"),
}
NAMES = {"model_name", "dataset_path", "neuronpedia_id"}
# Of these only some keys; of what an SAE was trained with, all that are plain.
OPTIONS: dict[str, set[str]] = {
    "model_from_pretrained_kwargs": {
        *("revision", "dtype", "torch_dtype", "attn_implementation"),
        *("center_writing_weights", "center_unembed", "fold_ln", "fold_value_biases"),
    },
    "training_architecture_details": set(),
}
# A name on the Hub or of TransformerLens's, or one like a Neuronpedia id.
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*){0,2}", re.ASCII)
_PLACE = re.compile(r"^[/~\\]|^\.{1,2}(/|$)|^[A-Za-z]:[\\/]|://|\\|[\r\n]")
_SECRETS = {
    "a Hugging Face token": r"hf_[A-Za-z0-9]{20,}|api_org_[A-Za-z0-9]{20,}",
    "an OpenAI or Anthropic key": r"sk-[A-Za-z0-9_-]{16,}",
    "an AWS key": r"\bAKIA[0-9A-Z]{16}\b",
    "a GitHub token": r"\bgh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{20,}",
    "a wandb key": r"(?i)wandb[\w\"'\\ .:=-]{0,40}\b[0-9a-f]{40}\b",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a password in an address": r"\w+://[^/\s:@]+:[^/\s:@]+@",
}


@dataclass(frozen=True)
class Redacted:
    """A config that may leave.

    Args:
        config: What is left of it.
        removed: The keys that were removed, joined by dots.
    """

    config: dict[str, Any]
    removed: list[str]


def redact(config: Mapping[str, Any]) -> Redacted:
    """Keep what SAELens needs to use an SAE, and what says where it comes from.

    Args:
        config: A `cfg.json`.

    Returns:
        The rest of it.
    """
    _, config_class = SAE_CLASS_REGISTRY[config["architecture"]]
    known = {"architecture", *(field.name for field in fields(config_class))}
    kept: dict[str, Any] = {}
    removed: list[str] = []
    for key, value in config.items():
        if key == "metadata":
            kept[key] = _redact_metadata(value if isinstance(value, dict) else {}, removed)
        elif key in known and _is_harmless(value):
            kept[key] = "cpu" if key == "device" else value
        else:
            removed.append(key)
    return Redacted(kept, removed)


def keep_harmless(value: Any) -> Any:
    """Leave out of JSON what is a path on this machine or an address.

    Args:
        value: Of JSON's types.

    Returns:
        The rest of it; `None` if it is one itself.
    """
    if isinstance(value, dict):
        kept = {key: keep_harmless(each) for key, each in value.items() if _is_harmless(key)}
        return {key: each for key, each in kept.items() if each is not None}
    if isinstance(value, list):
        return [each for each in map(keep_harmless, value) if each is not None]
    return value if _is_harmless(value) else None


def find_secrets(content: bytes | str) -> Iterator[str]:
    """What looks like a secret.

    Args:
        content: Of a file.

    Yields:
        What each looks like, and not the secret itself.
    """
    text = content if isinstance(content, str) else content.decode("utf-8", errors="replace")
    for kind, pattern in _SECRETS.items():
        if re.search(pattern, text):
            yield kind


def refuse_secrets(name: str | Path, content: bytes | str) -> None:
    """Stop where a file seems to hold a secret.

    Args:
        name: The file.
        content: What it holds.

    Raises:
        UserError: If it does.
    """
    for kind in find_secrets(content):
        raise UserError(f"{name} should hold no secret. Found what looks like {kind}.")


def _redact_metadata(metadata: Mapping[str, Any], removed: list[str]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in metadata.items():
        if key in OPTIONS and isinstance(value, dict):
            allowed = OPTIONS[key] or value.keys()
            kept[key] = {name: each for name, each in value.items() if name in allowed}
            kept[key] = {name: each for name, each in kept[key].items() if _is_harmless(each)}
            removed += [f"metadata.{key}.{name}" for name in value if name not in kept[key]]
        elif key in METADATA and _is_harmless(value) and (key not in NAMES or _is_name(value)):
            kept[key] = value
        else:
            removed.append(f"metadata.{key}")
    return kept


def _is_harmless(value: Any) -> bool:
    """Whether it is a plain value, and no path on this machine and no address."""
    if isinstance(value, list):
        return all(map(_is_harmless, value))
    if isinstance(value, str):
        return not _PLACE.search(value)
    return value is None or isinstance(value, bool | int | float)


def _is_name(value: Any) -> bool:
    return value is None or bool(isinstance(value, str) and _NAME.fullmatch(value))
