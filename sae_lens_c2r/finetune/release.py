"""The release that fine-tuning trains, written from what existing SAEs say of themselves."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sae_lens import SAE, MultiSAETrainingRunnerConfig

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.remote_code import harmless_runner
from sae_lens_c2r.architectures.c2r import C2RConfigMixin
from sae_lens_c2r.models.loading import (
    check_model_name,
    hub_id,
    official_name,
    on_this_machine,
    options_for,
)
from sae_lens_c2r.models.offline import is_model
from sae_lens_c2r.models.reading import Reading
from sae_lens_c2r.models.text_source import PARTS
from sae_lens_c2r.releases.configs import config_class_of
from sae_lens_c2r.releases.files import release_of
from sae_lens_c2r.releases.model import LICENSE_PATTERN, Release
from sae_lens_c2r.saes.origins import pin, record_of
from sae_lens_c2r.saes.record import SAERecord
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.saes.start_from import ESTIMATED, c2r_architecture, training_fields
from sae_lens_c2r.training.output_dir import difference

_OF_RUNNER = Reading().runner().keys()
_DEFAULTS: tuple[Any, ...] = ([None], {}, "HookedTransformer")  # which may be said, or not
_STRENGTH = ("c2r_coefficient", "c2r_scaling")
TOKENS = "language_model.training_tokens"
_NO_ID = re.compile(r"[^\w.-]+", re.ASCII)
# At the learning rate of its training, an SAE's latents change more than they need to.
_SLOWER = 3
# Parts of all steps: Adam begins without moments.
_SCHEDULES = {"lr_warm_up_steps": 20, "lr_decay_steps": 5}
# Of a training that is over; the steps are others now.
_OF_SCHEDULE = {*_SCHEDULES, "lr_scheduler_name", "lr_end", "n_restart_cycles"}
_ESTIMATED_BATCHES = 20  # of the stream, which is short; SAELens takes 1,000
_IN_UNITS = {"l0_coefficient", "l1_coefficient"}  # of the inputs that an SAE was trained on
_NEEDED = ("hook_name", "dataset", "context_size")  # of a language model


@dataclass(frozen=True)
class Subject:
    """An SAE to fine-tune, and what it says of its training, in the terms of a release."""

    ref: SAERef
    language_model: dict[str, Any]  # or what was asked for in its place
    runner: dict[str, Any]
    sae: dict[str, Any]
    says_k: bool  # or needs no k


def read_subjects(
    refs: Sequence[SAERef], changes: Mapping[str, Any], device: str = "cpu"
) -> dict[str, Subject]:
    """Load SAEs, and read what they say, by the ids that they are to have."""
    subjects: dict[str, Subject] = {}
    for ref in refs:
        name = ref.folder.resolve().name if ref.folder else str(ref.sae_id)
        parts = (_NO_ID.sub("-", part).lstrip("-.") for part in name.split("/"))
        name = "/".join(filter(None, parts)) or "sae"
        ids = (name, *(f"{name}-{number}" for number in range(2, len(refs) + 1)))
        sae_id = next(each for each in ids if each not in subjects)
        subjects[sae_id] = _read(ref, changes, device)
    return subjects


def _read(ref: SAERef, changes: Mapping[str, Any], device: str) -> Subject:
    pinned, sae = pin(ref)
    architecture = changes.get("sae.architecture") or c2r_architecture(sae)
    config_class = config_class_of({"architecture": architecture}, pinned.name)
    known = training_fields(sae, architecture)
    says_k = not hasattr(config_class, "k") or "k" in known
    record = record_of(pinned)
    settings = record.settings or {}
    own = settings.get("saes", {}).get(record.sae_id, {})
    # SAELens does not say how inputs were scaled. Its default keeps the unit in which a
    # sparsity coefficient was chosen. Whitening is in the weights by now.
    unsaid = "none" if _IN_UNITS & known.keys() else ESTIMATED
    scaling = own.get("normalize_activations", unsaid)
    fields = {
        "architecture": architecture,
        "init": pinned.address,
        "normalize_activations": scaling if scaling == "none" else ESTIMATED,
    }
    if known.get("c2r_coefficient") == 0:
        fields |= {key: getattr(C2RConfigMixin, key) for key in _STRENGTH}  # it was a baseline
    runner = Reading.of(sae.cfg.metadata).runner()
    runner |= settings.get("runner") or {}
    runner = harmless_runner(runner, pinned.name)
    runner = {key: value for key, value in runner.items() if key not in _OF_SCHEDULE}
    language_model = _language_model(sae, record, changes, pinned.name)
    if options := runner.get("model_from_pretrained_kwargs"):
        model = language_model.get("hub_id") or language_model.get("name") or ""
        own = record.source.get("hub_id") or sae.cfg.metadata.model_name
        options = on_this_machine(options_for(model, options, of=own), device)
        runner["model_from_pretrained_kwargs"] = options
    return Subject(pinned, language_model, runner, fields, says_k)


def _language_model(
    sae: SAE[Any], record: SAERecord, changes: Mapping[str, Any], shown: str
) -> dict[str, Any]:
    """The model and the text, with changes; a UserError if nothing says one of them."""
    metadata, recorded = sae.cfg.metadata, record.source
    name, known = metadata.model_name or "", recorded.get("hub_id")
    known = known or hub_id(name)
    # What has a slash is that id, or a folder, perhaps of another machine.
    is_name = "/" not in name or (known is None and is_model(name))
    own = {
        "hub_id": known,
        "name": recorded.get("name") if recorded else name if is_name else None,
        "revision": recorded.get("revision"),
        "hook_name": metadata.hook_name,
        "dataset": recorded.get("dataset") or metadata.dataset_path,
        **{key: metadata.get(f"dataset_{key}") for key in PARTS},
        "context_size": metadata.context_size,
    }
    prefix = "language_model."
    keys = [key.removeprefix(prefix) for key in changes if key.startswith(prefix)]
    given = {key: changes[f"{prefix}{key}"] for key in keys}
    if given.get("hub_id", own["hub_id"]) != own["hub_id"]:
        own["revision"] = own["name"] = None
    if given.get("dataset", own["dataset"]) != own["dataset"]:
        own |= dict.fromkeys(PARTS)
    if own["name"] == own["hub_id"]:
        own["name"] = None
    if not (own["hub_id"] or own["name"] or given.keys() & {"hub_id", "name"}):
        why = f"names {name}, which is no folder here" if name else "does not name it"
        raise UserError("model", f"be given: {shown} {why}")
    for key in _NEEDED:
        if not (own[key] or key in given):
            raise UserError(key, f"be given: {shown} does not name it")
    return {key: value for key, value in own.items() if value} | given


def keys_of_model(model: str) -> dict[str, str | None]:
    """A release's keys for a folder, an id on the Hub, or a name of TransformerLens."""
    check_model_name(model, "model")
    known, short = hub_id(model), model.rpartition("/")[2]
    name: str | None = model
    if model == known:  # of some ids TransformerLens knows the last part alone
        name = short if official_name(short) and not official_name(model) else None
    return {"language_model.hub_id": known, "language_model.name": name}


def finetuning_release(subjects: Mapping[str, Subject], changes: Mapping[str, Any]) -> Release:
    """Write a release whose SAEs start from existing SAEs."""
    first, *others = subjects.values()
    for other in others:
        differs = difference(first.language_model, other.language_model)
        if differs is None:
            differs = difference(_way(first.runner, changes), _way(other.runner, changes))
        if differs is not None:
            should = (
                "share a model, a hook, a text and the way of training, or be fine-tuned one "
                "by one"
            )
            found = f"{other.ref.name} differs from {first.ref.name}. {differs}"
            raise UserError("SAE...", should, more=found)
    licenses = {(subject.ref.license or "").lower() for subject in subjects.values()}
    license = licenses.pop() if len(licenses) == 1 else ""
    document = {
        "name": "finetuned",
        "description": "Existing SAEs, fine-tuned with C2R.",
        # The Hub's word for an unknown licence, for one of another name, and for several.
        "license": license if re.fullmatch(LICENSE_PATTERN, license) else "unknown",
        "language_model": {**first.language_model},
        "runner": _runner(first.runner, changes),
        "sae": {},
        "grids": [{"id": sae_id, "sae": {**each.sae}} for sae_id, each in subjects.items()],
    }
    return release_of(document, overrides=dict(changes))


def _way(runner: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """How SAEs are trained, all alike; if a learning rate is given, how the text is read."""
    given = {key.split(".")[1] for key in changes if key.startswith("runner.")}
    compared = (_OF_RUNNER if "lr" in given else runner.keys()) - given
    return {k: v for k, v in runner.items() if k in compared and v not in _DEFAULTS}


def _runner(runner: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """How the SAEs were trained, at a lower learning rate and with schedules that fit."""
    defaults = MultiSAETrainingRunnerConfig
    # SAELens runs the code of a dataset's repository, unless it is told not to.
    kept = {"autocast": True, "dataset_trust_remote_code": False, **runner}
    kept["lr"] = runner.get("lr", defaults.lr) / _SLOWER
    batches = runner.get("n_batches_for_norm_estimate", _ESTIMATED_BATCHES)
    kept["n_batches_for_norm_estimate"] = min(_ESTIMATED_BATCHES, batches)
    size = runner.get("train_batch_size_tokens", defaults.train_batch_size_tokens)
    size, tokens = changes.get("runner.train_batch_size_tokens", size), changes.get(TOKENS)
    is_ours = "runner.lr_scheduler_name" not in changes  # and no other schedule is asked for
    # Where they are not such numbers, making a plan says so.
    if is_ours and isinstance(size, int) and size > 0 and isinstance(tokens, int):
        steps = math.ceil(tokens / size)
        kept |= {name: steps // part for name, part in _SCHEDULES.items()}
    return kept
