"""The release that is trained of SAEs that exist: written of what they say of themselves."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sae_lens import MultiSAETrainingRunnerConfig
from sae_lens.loading.pretrained_saes_directory import get_repo_id_and_folder_name
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY, get_sae_training_class

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.releases.files import release_of
from sae_lens_c2r.releases.language_models import hub_id
from sae_lens_c2r.releases.model import Release
from sae_lens_c2r.saes.sae_ref import SAERef, file_on_hub
from sae_lens_c2r.saes.start_from import c2r_architecture, training_fields
from sae_lens_c2r.training.record import RECORD, TrainingRecord, read_record

# Of an SAE's metadata, what SAELens's runner is to be told again.
READING = (
    *("model_class_name", "prepend_bos", "seqpos_slice", "exclude_special_tokens"),
    *("sequence_separator_token", "disable_concat_sequences", "model_from_pretrained_kwargs"),
)
TOKENS = "language_model.training_tokens"
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_NUMBER = re.compile(
    r"((?:\d+|\d{1,3}(?:,\d{3})+|\d{1,3}(?:_\d{3})+)(?:\.\d+)?)([kmb]?)", re.IGNORECASE
)
_NO_ID = re.compile(r"[^\w.-]+")
# An SAE that is trained on as fast as it was trained forgets more of what its latents were.
_SLOWER = 3
# Parts of all steps: Adam begins without moments.
_SCHEDULES = {"lr_warm_up_steps": 20, "lr_decay_steps": 5}
_ESTIMATED_BATCHES = 20  # of the stream, which is short; SAELens takes 1,000
_NEEDED = {  # of a language model, and the options that say it
    "hub_id": "model",
    "hook_name": "hook-name",
    "dataset": "dataset",
    "context_size": "context-size",
}


@dataclass(frozen=True)
class Subject:
    """An SAE that is to be trained on, and what it says of how it was trained."""

    ref: SAERef
    metadata: Mapping[str, Any]
    record: TrainingRecord  # an empty one, if the training was not ours
    architecture: str  # to train it as
    says_k: bool  # or need not

    @property
    def runner(self) -> dict[str, Any]:
        """How the text was read and the SAE trained: fields of SAELens's runner."""
        if self.record.settings is not None:
            recorded = dict(self.record.settings.get("runner") or {})
            if self.ref.repo is not None:  # others may not have code of theirs run here
                recorded.pop("dataset_trust_remote_code", None)
            return recorded
        reading = {key: self.metadata.get(key) for key in READING}
        reading["hook_head_indices"] = self.metadata.get("hook_head_index")
        reading = {key: value for key, value in reading.items() if value is not None}
        # A BOS token's norm can be 30 times the others': few SAEs were trained on it.
        return {"exclude_special_tokens": True, **reading}

    def language_model(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The model and the text, with the changes; a UserError if nothing says one of them."""
        recorded = self.record.model.model_dump(exclude_none=True)
        name = self.metadata.get("model_name")
        own = {
            "hub_id": recorded.get("hub_id") or hub_id(name or ""),
            "name": recorded.get("name") if recorded else name,
            "revision": recorded.get("revision"),
            "hook_name": self.metadata.get("hook_name"),
            "dataset": recorded.get("dataset") or self.metadata.get("dataset_path"),
            "context_size": self.metadata.get("context_size"),
        }
        given = _below("language_model", changes)
        if "hub_id" in given or own["name"] == own["hub_id"]:
            own["name"] = None
        if "hub_id" in given:
            own["revision"] = None
        merged = {**own, **given}
        for key, option in _NEEDED.items():
            if not merged[key]:
                raise UserError(f"`{option}` should be given: {self.ref.name} does not say it.")
        return {key: value for key, value in merged.items() if value is not None}

    def sae(self) -> dict[str, Any]:
        """Fields of an SAE of a release that is to start from it."""
        settings = (self.record.settings or {}).get("saes", {}).get(self.record.sae_id, {})
        # SAELens knows a repository by the name of its release, or else by its own.
        key = "repo" if self.ref.repo == self.ref.release else "release"
        place = {
            key: self.ref.release,
            "sae_id": self.ref.sae_id,
            "revision": self.ref.revision,
        }
        if self.ref.folder is not None:
            place = {"folder": str(self.ref.folder)}
        return {
            "architecture": self.architecture,
            "init": {key: value for key, value in place.items() if value is not None},
            "normalize_activations": settings.get(
                "normalize_activations", "expected_average_only_in"
            ),
        }


def read_subject(ref: SAERef, changes: Mapping[str, Any]) -> Subject:
    """Load an SAE, and read what it says; a UserError if it cannot be loaded."""
    asked = changes.get("sae.architecture")
    if asked is not None and str(asked) not in SAE_TRAINING_CLASS_REGISTRY:
        known = ", ".join(sorted(SAE_TRAINING_CLASS_REGISTRY))
        raise UserError(f"`architecture` should be one of {known}. Found {asked!r}.")
    pinned, sae = ref.pin()
    architecture = asked or c2r_architecture(sae)
    _, config_class = get_sae_training_class(architecture)
    says_k = not hasattr(config_class, "k") or "k" in training_fields(sae, architecture)
    metadata = dict(sae.cfg.metadata.to_dict())
    return Subject(pinned, metadata, _record_of(pinned), architecture, says_k)


def _record_of(ref: SAERef) -> TrainingRecord:
    """The record of our training of an SAE, in its folder or beside it on the Hub."""
    if ref.folder is not None:
        return read_record(ref.folder) or TrainingRecord()
    repo, folder = get_repo_id_and_folder_name(ref.release or "", ref.sae_id or "")
    path = file_on_hub(repo, f"{folder}/{RECORD}", ref.revision)
    try:
        return (path and read_record(path.parent)) or TrainingRecord()
    except UserError:  # somebody else's file of that name
        return TrainingRecord()


def id_of(ref: SAERef) -> str:
    """An id that a release may have for an SAE: of its folder's name, or of its own."""
    name = ref.folder.resolve().name if ref.folder else str(ref.sae_id)
    parts = (_NO_ID.sub("-", part).lstrip("-.") for part in name.split("/"))
    return "/".join(filter(None, parts)) or "sae"


def finetuning_release(
    subjects: Mapping[str, Subject],
    changes: Mapping[str, Any],
    *,
    l0s: Mapping[str, float] | None = None,
) -> Release:
    """Write a release of SAEs that start from SAEs."""
    first = next(iter(subjects.values()))
    language_model = _shared_language_model(list(subjects.values()), changes)
    alike = all(subject.runner == first.runner for subject in subjects.values())
    if not alike and "runner.lr" not in changes:
        raise UserError("`SAE...` should have been trained alike, or be trained on in turn.")
    licenses = {subject.ref.license or "" for subject in subjects.values()}
    license = licenses.pop().lower() if len(licenses) == 1 else ""
    ks = {sae_id: {"k": max(1, round(l0))} for sae_id, l0 in (l0s or {}).items()}
    document = {
        "name": "finetuned",
        "description": "SAEs that were trained before, trained on with C2R.",
        # The Hub's word for one that is not known, or not one.
        "license": license if license and " " not in license else "unknown",
        "repo_id": "sae-lens-c2r/finetuned",
        "language_model": language_model,
        "runner": _runner(first.runner, changes),
        "sae": {},
        "grids": [
            {"id": sae_id, "sae": {**subject.sae(), **ks.get(sae_id, {})}}
            for sae_id, subject in subjects.items()
        ],
    }
    return release_of(document, overrides=dict(changes))


def _shared_language_model(
    subjects: list[Subject], changes: Mapping[str, Any]
) -> dict[str, Any]:
    first, *others = [subject.language_model(changes) for subject in subjects]
    for subject, other in zip(subjects[1:], others, strict=True):
        for key in {**first, **other}:
            if first.get(key) != other.get(key):
                raise UserError(
                    f"`SAE...` should be of one model, hook and text. Found `{key}` "
                    f"{first.get(key)} of {subjects[0].ref.name}, and {other.get(key)} of "
                    f"{subject.ref.name}."
                )
    return first


def _runner(runner: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """How the SAEs were trained, at a lower learning rate and with schedules that fit."""
    kept = {name: value for name, value in runner.items() if name not in _SCHEDULES}
    estimated = kept.get("n_batches_for_norm_estimate", _ESTIMATED_BATCHES)
    default = MultiSAETrainingRunnerConfig.train_batch_size_tokens
    size = {**kept, **_below("runner", changes)}.get("train_batch_size_tokens", default)
    tokens = changes.get(TOKENS)
    # What they should be, if they are no such numbers, is said when a plan is made.
    if isinstance(size, int) and size > 0 and isinstance(tokens, int):
        steps = math.ceil(tokens / size)
        kept |= {name: steps // part for name, part in _SCHEDULES.items()}
    return {
        **kept,
        "lr": runner.get("lr", MultiSAETrainingRunnerConfig.lr) / _SLOWER,
        "n_batches_for_norm_estimate": min(_ESTIMATED_BATCHES, estimated),
    }


def _below(key: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes below a key, without it."""
    prefix = f"{key}."
    return {
        name.removeprefix(prefix): value
        for name, value in changes.items()
        if name.startswith(prefix)
    }


def count_of(text: str) -> int:
    """The number that a text like 5M, 40k or 5_000_000 says; a UserError if it says none."""
    number = _NUMBER.fullmatch(text.strip())
    count = 0
    if number:
        digits = number[1].replace("_", "").replace(",", "")
        count = round(float(digits) * _UNITS[number[2].lower()])
    if count < 1:
        raise UserError(f"`tokens` should be a number like 5M or 400k. Found {text!r}.")
    return count
