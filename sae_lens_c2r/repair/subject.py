"""An SAE that is to be repaired, and what it says of how it was trained."""

import re
from dataclasses import dataclass
from typing import Any

from sae_lens import SAE
from sae_lens.loading.pretrained_saes_directory import get_repo_id_and_folder_name
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.releases.language_models import hub_id
from sae_lens_c2r.repair.options import RepairOptions
from sae_lens_c2r.repair.read_as import READING
from sae_lens_c2r.saes.licenses import file_on_hub
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.saes.training_fields import c2r_architecture, training_fields
from sae_lens_c2r.training.record import RECORD, TrainingRecord, read_record

_NO_ID = re.compile(r"[^\w.-]+")


@dataclass(frozen=True)
class Subject:
    """An SAE that is to be repaired.

    Args:
        origin: Which.
        metadata: What its config says of its training: model, hook, data.
        sae_id: What it is called once it is repaired.
        record: What our training recorded of it, if it was ours.
        architecture: What it is trained as.
        fields: How it was trained, as far as it says.
    """

    origin: SAERef
    metadata: dict[str, Any]
    sae_id: str
    record: TrainingRecord
    architecture: str
    fields: dict[str, Any]

    @property
    def init(self) -> dict[str, str]:
        """What a release says for it."""
        source = self.origin
        if source.folder is not None:
            return {"folder": str(source.folder)}
        # SAELens knows a repository by the name of its release, or else by its own.
        key = "repo" if source.repo == source.release else "release"
        said = {key: source.release, "sae_id": source.sae_id, "revision": source.revision}
        return {name: value for name, value in said.items() if value is not None}

    @property
    def runner(self) -> dict[str, Any]:
        """How the text was read and the SAE trained: fields of SAELens's runner."""
        if self.record.settings is not None:
            recorded = dict(self.record.settings.get("runner") or {})
            if self.origin.repo is not None:  # others may not have code of theirs run here
                recorded.pop("dataset_trust_remote_code", None)
            return recorded
        about = self.metadata
        found = {name: about[name] for name in READING if about.get(name) is not None}
        if about.get("hook_head_index") is not None:
            found["hook_head_indices"] = about["hook_head_index"]
        # A BOS token's norm can be 30 times the others': few SAEs were trained on it.
        return {"exclude_special_tokens": True, **found}

    @property
    def normalize_activations(self) -> str:
        """How its inputs were scaled in training; by an estimate if nothing says so."""
        settings = self.record.settings or {}
        recorded = settings.get("saes", {}).get(self.record.sae_id, {})
        return str(recorded.get("normalize_activations", "expected_average_only_in"))

    def language_model(self, options: RepairOptions) -> dict[str, Any]:
        """The model and the text: the options', or else what the SAE says.

        Args:
            options: What was said of them.

        Returns:
            Fields of a release's `language_model`.

        Raises:
            UserError: If neither says one of them; it is asked for by name.
        """
        about, said = self.metadata, self._recorded_model()
        model = options.model or said.get("hub_id") or hub_id(about.get("model_name") or "")
        name = about.get("model_name") if not said else said.get("name")
        found = {
            "hub_id": model,
            "name": name if name and options.model is None and name != model else None,
            "revision": said.get("revision") if options.model is None else None,
            "hook_name": options.hook_name or about.get("hook_name"),
            "dataset": options.dataset or said.get("dataset") or about.get("dataset_path"),
            "context_size": options.context_size or about.get("context_size"),
        }
        named = {"hub_id": "model"}
        for key in ("hub_id", "hook_name", "dataset", "context_size"):
            if not found[key] and f"language_model.{key}" not in options.changes:
                option = named.get(key, key).replace("_", "-")
                raise UserError(
                    f"`{option}` should be given: {self.origin.name} does not say it."
                )
        return {**found, "training_tokens": options.tokens}

    def _recorded_model(self) -> dict[str, Any]:
        return self.record.model.model_dump(exclude_none=True)


def find_subject(source: SAERef, options: RepairOptions) -> tuple[Subject, SAE[Any]]:
    """Load an SAE, and read what it says.

    Args:
        source: Where from.
        options: What was said of it.

    Returns:
        What it says, and the SAE in its inference form.

    Raises:
        UserError: If it cannot be loaded.
    """
    asked = options.changes.get("sae.architecture", options.architecture)
    if asked is not None and str(asked) not in SAE_TRAINING_CLASS_REGISTRY:
        known = ", ".join(sorted(SAE_TRAINING_CLASS_REGISTRY))
        raise UserError(f"`architecture` should be one of {known}. Found {asked!r}.")
    origin, sae = source.pin()
    metadata = dict(sae.cfg.metadata.to_dict())
    architecture = asked or c2r_architecture(sae)
    fields = training_fields(sae, architecture)
    return Subject(
        origin, metadata, _id_of(source), _record_of(origin), architecture, fields
    ), sae


def _id_of(source: SAERef) -> str:
    """What an SAE may be called in a release: its folder's name or its id, as far as it can."""
    name = source.folder.resolve().name if source.folder else str(source.sae_id)
    parts = (_NO_ID.sub("-", part).lstrip("-.") for part in name.split("/"))
    return "/".join(filter(None, parts)) or "sae"


def _record_of(source: SAERef) -> TrainingRecord:
    """What our training recorded of an SAE, in its folder or beside it on the Hub."""
    if source.folder is not None:
        return read_record(source.folder) or TrainingRecord()
    repo, folder = get_repo_id_and_folder_name(source.release or "", source.sae_id or "")
    path = file_on_hub(repo, f"{folder}/{RECORD}", source.revision)
    try:
        return (path and read_record(path.parent)) or TrainingRecord()
    except UserError:  # somebody else's file of that name
        return TrainingRecord()
