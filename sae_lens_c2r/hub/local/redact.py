"""What of an SAE's config leaves this machine: what is known to be harmless, and no more."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sae_lens.registry import SAE_CLASS_REGISTRY, SAE_TRAINING_CLASS_REGISTRY

from sae_lens_c2r.hub.leaks import is_plain

# SAELens's own and ours, which say how to use an SAE and how it was trained.
METADATA = {
    *("sae_lens_version", "sae_lens_training_version", "training_architecture"),
    *("model_name", "model_class_name", "dataset_path", "neuronpedia_id"),
    *("hook_name", "hook_head_index", "context_size", "prepend_bos", "seqpos_slice"),
    *("exclude_special_tokens", "disable_concat_sequences", "sequence_separator_token"),
    *("c2r_effective_coefficient", "ort_effective_coefficient"),
    *("l0", "num_dead_features", "is_transcoder", "hook_name_out", "d_out"),
}
_MODEL_OPTIONS = {
    *("revision", "dtype", "torch_dtype", "attn_implementation"),
    *("center_writing_weights", "center_unembed", "fold_ln", "fold_value_biases"),
}
_NEURONPEDIA = re.compile(r"[\w.-]+/[\w.-]+/[\w.-]+", re.ASCII)


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
    """What SAELens needs to use an SAE, and what says where it comes from."""
    _, config_class = SAE_CLASS_REGISTRY[config["architecture"]]
    known = {"architecture", *(field.name for field in fields(config_class))} - {"metadata"}
    removed: list[str] = []
    others = {key: value for key, value in config.items() if key != "metadata"}
    kept = _keep(others, known, "", removed)
    if "device" in kept:
        kept["device"] = "cpu"
    metadata = config.get("metadata")
    if isinstance(metadata, dict):
        kept["metadata"] = _redact_metadata(metadata, removed)
    return Redacted(kept, removed)


def _redact_metadata(metadata: Mapping[str, Any], removed: list[str]) -> dict[str, Any]:
    """The metadata, and of its two mappings what is known of these."""
    mappings = {
        "model_from_pretrained_kwargs": _MODEL_OPTIONS,
        "training_architecture_details": _options_of(metadata.get("training_architecture")),
    }
    plain = {key: value for key, value in metadata.items() if key not in mappings}
    kept = _keep(plain, METADATA, "metadata.", removed)
    for key, known in mappings.items():
        inner = metadata.get(key)
        if isinstance(inner, dict):
            kept[key] = _keep(inner, known, f"metadata.{key}.", removed)
        elif key in metadata:
            removed.append(f"metadata.{key}")
    return kept


def _options_of(architecture: Any) -> set[str]:
    """The fields of the config that an SAE was trained with."""
    registered = (
        SAE_TRAINING_CLASS_REGISTRY.get(architecture) if isinstance(architecture, str) else None
    )
    return {field.name for field in fields(registered[1])} if registered else set()


def _keep(
    values: Mapping[str, Any], known: set[str], prefix: str, removed: list[str]
) -> dict[str, Any]:
    kept = {}
    for key, value in values.items():
        named = key == "neuronpedia_id" and isinstance(value, str)
        if key in known and (is_plain(value) or (named and _NEURONPEDIA.fullmatch(value))):
            kept[key] = value
        else:
            removed.append(f"{prefix}{key}")
    return kept
