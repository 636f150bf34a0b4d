"""An SAE that is to be repaired, and what it says of how it was trained."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sae_lens import SAE, TrainingSAE
from transformer_lens.loading_from_pretrained import get_official_model_name

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.repair.options import RepairOptions
from sae_lens_c2r.saes.origin import Origin, find_origin
from sae_lens_c2r.saes.sources import Source
from sae_lens_c2r.saes.training_fields import c2r_architecture, training_fields
from sae_lens_c2r.training.record import TrainingRecord, read_record

# Of an SAE's metadata, what SAELens's runner is to be told again.
_READING = (
    *("model_class_name", "prepend_bos", "seqpos_slice", "exclude_special_tokens"),
    *("sequence_separator_token", "disable_concat_sequences", "model_from_pretrained_kwargs"),
)


@dataclass(frozen=True)
class _ReadAs(Source):
    """An SAE whose config says what it is read on, whatever it says by itself."""

    metadata: Mapping[str, Any] = field(default_factory=dict)

    def load(self, device: str) -> SAE[Any] | TrainingSAE[Any]:
        sae = super().load(device)
        for key, value in self.metadata.items():
            sae.cfg.metadata[key] = value
        return sae


@dataclass(frozen=True)
class Subject:
    """An SAE that is to be repaired.

    Args:
        origin: Which.
        sae_id: What it is called once it is repaired.
        record: What our training recorded of it, if it was ours.
        architecture: What it is trained as.
        fields: How it was trained, as far as it says.
    """

    origin: Origin
    sae_id: str
    record: TrainingRecord
    architecture: str
    fields: dict[str, Any]

    @property
    def init(self) -> dict[str, str]:
        """What a release says for it."""
        source = self.origin.source
        if source.folder is not None:
            return {"folder": str(source.folder)}
        # SAELens knows a repository by the name of its release, or else by its own.
        key = "repo" if self.origin.repo == source.release else "release"
        said = {key: source.release, "sae_id": source.sae_id, "revision": source.revision}
        return {name: value for name, value in said.items() if value is not None}

    @property
    def runner(self) -> dict[str, Any]:
        """How the text was read and the SAE trained: fields of SAELens's runner."""
        if self.record.settings is not None:
            return dict(self.record.settings.get("runner") or {})
        about = self.origin.metadata
        found = {name: about[name] for name in _READING if about.get(name) is not None}
        if about.get("hook_head_index") is not None:
            found["hook_head_indices"] = about["hook_head_index"]
        # A BOS token's norm can be 30 times the others': few SAEs were trained on it.
        return {"exclude_special_tokens": True, **found}

    def source(self, options: RepairOptions) -> Source:
        """The SAE, to be read as it will be trained: with the model and the tokens of that."""
        model, runner = self.language_model(options), self.runner
        read = {name: runner[name] for name in _READING if name in runner}
        read |= {name: model[name] for name in ("hook_name", "context_size")}
        return _ReadAs(
            **vars(self.origin.source),
            metadata={**read, "model_name": model["name"] or model["hub_id"]},
        )

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
        about, said = self.origin.metadata, self._recorded_model()
        model = options.model or said.get("hub_id") or _hub_id(about.get("model_name"))
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
            if not found[key]:
                option = named.get(key, key).replace("_", "-")
                raise UserError(
                    f"`{option}` should be given: {self.origin.source.name} does not say it."
                )
        return {**found, "training_tokens": options.tokens}

    def _recorded_model(self) -> dict[str, Any]:
        return self.record.model.model_dump(exclude_none=True)


def find_subject(source: Source, options: RepairOptions) -> tuple[Subject, SAE[Any]]:
    """Load an SAE, and read what it says.

    Args:
        source: Where from.
        options: What was said of it.

    Returns:
        What it says, and the SAE in its inference form.

    Raises:
        UserError: If it cannot be loaded.
    """
    origin, sae = find_origin(source)
    architecture = options.architecture or c2r_architecture(sae)
    record = (read_record(source.folder) if source.folder else None) or TrainingRecord()
    sae_id = source.folder.resolve().name if source.folder else str(source.sae_id)
    fields = training_fields(sae, architecture)
    return Subject(origin, sae_id, record, architecture, fields), sae


def _hub_id(model_name: str | None) -> str | None:
    """A model's name on the Hub, which TransformerLens knows of its own names."""
    if model_name is None or "/" in model_name:
        return model_name
    try:
        official = get_official_model_name(model_name)
    except ValueError:
        return None
    return official if "/" in official else None
