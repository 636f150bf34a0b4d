"""The fields that may be published, by name, each with a pattern; nobody's keys."""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from sae_lens.registry import SAE_CLASS_REGISTRY, SAE_TRAINING_CLASS_REGISTRY

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.remote_code import HARMLESS
from sae_lens_c2r.models.names import ModelName
from sae_lens_c2r.models.text_source import OFFLINE_DATASET, PARTS, looks_like_a_file
from sae_lens_c2r.releases.model import LICENSE_PATTERN, REPO_ID

_ON_THE_HUB = (REPO_ID, "like org/name, on the Hub")
_NAMES = {  # by what they name: their pattern, and what they should be
    "repo_id": _ON_THE_HUB,
    "base_model": _ON_THE_HUB,
    "license": (LICENSE_PATTERN, "a licence of the Hub, like mit or apache-2.0"),
}

_BEGIN = r"(?<![A-Za-z0-9])"
# "sk" is Slovak, too: a key has a run of letters and digits that is too long to be a word.
_NO_WORD = r"(?=[\w-]*?(?<![A-Za-z0-9])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{20})[\w-]+"
_SECRETS = {
    "a Hugging Face token": _BEGIN + r"(?:hf|api_org)_[A-Za-z0-9]{30,}",
    "an OpenAI or Anthropic key": _BEGIN
    + rf"sk-(?=[\w-]*?(?:\d[A-Za-z]|[A-Za-z0-9]{{32}})){_NO_WORD}",
    "an AWS key": _BEGIN + r"A[KS]IA[0-9A-Z]{16}\b",
    "a GitHub token": _BEGIN + r"(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9]{20}\w*)",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY",
}

# Patterns of the texts that a field may have. Numbers, which may stand in all fields, name
# nothing; a slash stands in names on the Hub alone.
_NUMBERS = r"(?!)"
_WORD = r"[\w.]+"  # one of a config's choices, or the name of an option
_NAME = r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)?"  # of a model or a text
_VERSION = r"[\w.+-]{1,40}"
_PLACE_IN_MODEL = r"\w+(\.\w+)*"  # a hook or a module
_PART = r"[\w.+: -]{1,200}"  # of a text
_DEVICE = r"[\w.,() -]{1,80}"
_HASH = r"[0-9a-f]{40,64}"
# What `evaluate` was asked for, where a file or a folder has its whole path.
_SETTING = rf"{_NAME}|(?:[\w.+:()\[\]{{}}<>|,;= -]|%(?=[\]:])){{0,200}}"

_OF_TEXT = {
    "dataset_split": rf"{_PART}(\[[\d:%-]*\])?",  # like train[:10%]
    "dataset_subset": _PART,
    "dataset_column": _PART,
}
# Of a model's options, all but those that are of a machine.
_OF_MODEL = dict.fromkeys(
    HARMLESS
    - {"device_map", "n_devices", "max_memory", "low_cpu_mem_usage", "local_files_only"}
    - {"tp_plan"},
    r"[\w.-]+",
)
_FILES_OF_MODEL = ("gguf_file", "subfolder", "revision", "variant")
# Of a config's metadata, what says how to use an SAE and how it was trained.
_METADATA: dict[str, Any] = {
    **dict.fromkeys(("sae_lens_version", "sae_lens_training_version"), _VERSION),
    **dict.fromkeys(("training_architecture", "model_class_name"), _WORD),
    **dict.fromkeys(("model_name", "model_hub_id", "dataset_path"), _NAME),
    **dict.fromkeys(("hook_name", "hook_name_out"), _PLACE_IN_MODEL),
    **dict.fromkeys(("hf_hook_name", "hf_hook_name_out"), _PLACE_IN_MODEL),
    **dict.fromkeys(("hook_head_index", "hook_head_index_out", "d_out", "l0"), _NUMBERS),
    **dict.fromkeys(("context_size", "num_dead_features", "seqpos_slice"), _NUMBERS),
    **dict.fromkeys(("c2r_effective_coefficient", "ort_effective_coefficient"), _NUMBERS),
    **dict.fromkeys(("prepend_bos", "disable_concat_sequences", "is_transcoder"), _NUMBERS),
    **dict.fromkeys(("exclude_special_tokens", "use_chat_formatting", "autocast_lm"), _NUMBERS),
    **dict.fromkeys(("max_activation_norm_multiple", "store_batch_size_prompts"), _NUMBERS),
    "model_kwargs": _NUMBERS,
    "sequence_separator_token": _WORD,
    "neuronpedia_id": r"([\w.-]+/)?[\w.-]+/[\w.-]+",
    "model_from_pretrained_kwargs": _OF_MODEL,
    **_OF_TEXT,
}
OF_RECORD = {
    **dict.fromkeys(("weights_sha256", "config_sha256", "file_sha256"), _HASH),
    **dict.fromkeys(("architecture", "trained_as", "model_class", "dtype", "options"), _WORD),
    **dict.fromkeys(("d_in", "d_sae", "context_size", "trained_together"), _NUMBERS),
    **dict.fromkeys(("steps", "samples", "seconds"), _NUMBERS),
    **dict.fromkeys(("model", "model_name", "dataset"), _NAME),
    **{"hook_name": _PLACE_IN_MODEL, "effective_coefficients": _WORD},
    **{"device": _DEVICE, "versions": _VERSION},
}
OF_START = {
    **{"repo": _NAME, "revision": _HASH, "license": r"[\w.+() -]{1,80}"},
    "sha256": rf"{_HASH}|[\w.-]+",  # by the names of files
}
_EVALUATION = {"text": _NAME, "model": _NAME, "device": _DEVICE, "versions": _VERSION}


def check_names(**names: str | None) -> None:
    """Raise unless the Hub takes each name that is given."""
    for name, value in names.items():
        pattern, should = _NAMES[name]
        if value is not None and not re.fullmatch(pattern, value, re.ASCII):
            raise UserError(name, f"be {should}", repr(value))


def refuse_secrets(name: str | Path, text: str) -> None:
    """Raise where a text that is published holds what a key looks like."""
    for kind, pattern in _SECRETS.items():
        if found := re.search(pattern, text):
            line = text.count("\n", 0, found.start()) + 1
            found_in = f"what looks like {kind}, in line {line}"
            raise UserError(Path(name), "hold no secret to be published", found_in)


def is_of_the_hub(name: Any, from_disk: Collection[str] | None) -> bool:
    """Whether a model or a text is the Hub's, or ours, and no file or folder of a disk."""
    if not (isinstance(name, str) and _fits(name, _NAME)):
        return False
    if from_disk is not None:  # as training has recorded
        return name not in from_disk
    is_known = (
        "/" in name
        or name == OFFLINE_DATASET
        or ModelName(name).in_transformer_lens is not None
    )
    path = Path(name)
    is_there = path.is_file() or (path.is_dir() and any(path.iterdir()))
    return is_known and not is_there and not looks_like_a_file(name)


def redact(
    config: Mapping[str, Any], from_disk: Collection[str] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Keep what SAELens needs of a config, and what tells its origin; list what is removed."""
    metadata = config.get("metadata") or {}
    allowed: dict[str, Any] = _fields_of(SAE_CLASS_REGISTRY, config.get("architecture"))
    of_training = _fields_of(SAE_TRAINING_CLASS_REGISTRY, metadata.get("training_architecture"))
    of_metadata = {**_METADATA, "training_architecture_details": of_training}
    # What belongs to a model or a text of a disk is not named, either.
    if not is_of_the_hub(metadata.get("dataset_path"), from_disk):
        of_metadata = _without(of_metadata, "dataset_path", *_OF_TEXT)
    if not is_of_the_hub(metadata.get("model_name"), from_disk):
        of_metadata = _without(of_metadata, "model_name")
        of_metadata["model_from_pretrained_kwargs"] = _without(_OF_MODEL, *_FILES_OF_MODEL)
    allowed |= {"architecture": _WORD, "metadata": of_metadata}
    removed: list[str] = []
    return keep({**config, "device": "cpu"}, allowed, removed), removed


def public_evaluation(
    values: Mapping[str, Any],
    from_disk: Collection[str] | None = None,
    dataset: str | None = None,  # that the SAE was trained on, if it is public
) -> dict[str, Any]:
    """Keep an evaluation, without the names of local models and texts, or of their parts."""
    kept = keep(values, _EVALUATION)
    hidden = set() if values.get("text") or dataset else set(PARTS)
    for key in ("model", "text"):  # `evaluate` has written whole paths of those of a disk
        name = values.get(key)
        is_public = is_of_the_hub(name, from_disk or ()) and not looks_like_a_file(str(name))
        if name is not None and not is_public:
            kept[key] = f"a {key} that is not public"
            hidden |= set(PARTS) if key == "text" else set()
    for key, pattern in {"settings": _SETTING, "metrics": _NUMBERS}.items():
        kept[key] = {
            name: value
            for name, value in values[key].items()
            if name not in hidden and _fits(name, _SETTING) and _fits(value, pattern)
        }
    return kept


def keep(
    values: Mapping[str, Any],
    allowed: Mapping[str, Any],
    removed: list[str] | None = None,
    place: str = "",
) -> dict[str, Any]:
    """Keep the fields that are allowed and fit their patterns; list the others."""
    kept = {}
    for key, value in values.items():
        of_key = allowed.get(key)
        if isinstance(of_key, Mapping) and isinstance(value, Mapping):
            kept[key] = keep(value, of_key, removed, f"{place}{key}.")
        elif isinstance(of_key, str) and _fits(value, of_key):
            kept[key] = value
        elif removed is not None and value is not None:
            removed.append(place + key)
    return kept


def _without(allowed: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: allowed[name] for name in allowed if name not in names}


def _fits(value: Any, pattern: str) -> bool:
    """Whether JSON has finite numbers, and of texts only such as match a pattern."""
    if isinstance(value, str):
        return bool(re.fullmatch(pattern, value, re.ASCII))
    if isinstance(value, Mapping):
        return all(_fits(each, pattern) for pair in value.items() for each in pair)
    if isinstance(value, list):
        return all(_fits(each, pattern) for each in value)
    return value is None or (isinstance(value, int | float) and math.isfinite(value))


def _fields_of(registry: Mapping[str, Any], architecture: Any) -> dict[str, str]:
    """The fields of an architecture's config, if there is such an architecture."""
    if not isinstance(architecture, str) or architecture not in registry:
        return {}
    return {field.name: _WORD for field in fields(registry[architecture][1])}
