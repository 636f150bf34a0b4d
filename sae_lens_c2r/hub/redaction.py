"""Redaction: of an SAE's config only what is known to be harmless leaves this machine."""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sae_lens.registry import SAE_CLASS_REGISTRY, SAE_TRAINING_CLASS_REGISTRY

from sae_lens_c2r.hub.rules import is_plain

# SAELens's own and ours, which say how to use an SAE and how it was trained.
_METADATA = {
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


def redact(config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Keep what SAELens needs of a config, and what tells its origin; list what is removed."""
    architecture, metadata = config["architecture"], config.get("metadata")
    trained_as = metadata.get("training_architecture") if isinstance(metadata, dict) else None
    known = {
        (): {"architecture", *_fields_of(SAE_CLASS_REGISTRY, architecture)},
        ("metadata",): _METADATA,
        ("metadata", "model_from_pretrained_kwargs"): _MODEL_OPTIONS,
        ("metadata", "training_architecture_details"): _fields_of(
            SAE_TRAINING_CLASS_REGISTRY, trained_as
        ),
    }
    removed: list[str] = []

    def keep(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> dict[str, Any]:
        kept = {}
        for key, value in values.items():
            inside = (*path, key)
            if inside in known and isinstance(value, dict):
                kept[key] = keep(value, inside)
            elif inside not in known and key in known[path] and _is_harmless(key, value):
                kept[key] = value
            else:
                removed.append(".".join(inside))
        return kept

    kept = keep(config)
    return ({**kept, "device": "cpu"} if "device" in kept else kept), removed


def _fields_of(registry: Mapping[str, Any], architecture: Any) -> set[str]:
    """The fields of an architecture's config, if there is such an architecture."""
    if not isinstance(architecture, str) or architecture not in registry:
        return set()
    return {field.name for field in fields(registry[architecture][1])}


def _is_harmless(key: str, value: Any) -> bool:
    if key == "neuronpedia_id" and isinstance(value, str) and _NEURONPEDIA.fullmatch(value):
        return True
    return is_plain(value)
