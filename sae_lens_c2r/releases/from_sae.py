"""A release that trains an existing SAE further, written from what the SAE says of itself."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from sae_lens import SAE, MultiSAETrainingRunnerConfig

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.remote_code import harmless_runner
from sae_lens_c2r.architectures.c2r import C2RConfigMixin
from sae_lens_c2r.models.names import ModelName
from sae_lens_c2r.models.reading import Reading
from sae_lens_c2r.releases.configs import config_class_of
from sae_lens_c2r.releases.files import release_of
from sae_lens_c2r.releases.model import LICENSE_PATTERN, Release
from sae_lens_c2r.saes.origins import pin
from sae_lens_c2r.saes.record import SAERecord, read_record
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.saes.start_from import ESTIMATED, c2r_architecture, training_fields

# At the learning rate of its training, an SAE's latents change more than they need to.
_SLOWER = 3
# Parts of all steps: Adam begins without moments.
_SCHEDULES = {"lr_warm_up_steps": 20, "lr_decay_steps": 5}
# Of a training that is over; the steps are others now.
_OF_SCHEDULE = {*_SCHEDULES, "lr_scheduler_name", "lr_end", "n_restart_cycles"}
_ESTIMATED_BATCHES = 20  # of the stream, which is short; SAELens takes 1,000
_IN_UNITS = {"l0_coefficient", "l1_coefficient"}  # of the inputs that an SAE was trained on
_OF_MACHINE = ("device", "device_map", "n_devices")  # options of loading a model
_COEFFICIENT = ("c2r_coefficient", "c2r_scaling")


def release_from(
    ref: SAERef,
    name: str,
    *,
    tokens: int,
    changes: Mapping[str, Any],
    tell: Callable[[str], None] = print,  # what the SAE does not say
) -> tuple[Release, str]:
    """The release that trains an SAE with C2R, with changes by its keys, and its YAML."""
    pinned, sae = pin(ref)
    record = read_record(pinned.folder) if pinned.folder else SAERecord()
    settings = record.settings or {}
    reading = Reading.of(sae.cfg.metadata)
    if reading.assumed:
        tell(f"{pinned.name}: {reading.assumed}")
    runner = harmless_runner({**reading.runner(), **settings.get("runner", {})}, pinned.name)
    place = pinned.folder.resolve().name if pinned.folder else str(pinned.sae_id)
    license = (pinned.license or "").lower()
    document = {
        "name": name,
        "description": "An existing SAE, trained further with C2R.",
        # The Hub's word for an unknown licence, and for one of another name.
        "license": license if re.fullmatch(LICENSE_PATTERN, license) else "unknown",
        "language_model": _language_model(reading, runner, tokens, changes, pinned.name),
        "runner": _runner(runner, tokens, changes),
        "sae": _sae(sae, pinned, record, changes),
        "grids": [{"id": re.sub(r"[^\w./-]+", "-", place, flags=re.ASCII).strip("./-")}],
    }
    release = release_of(document, overrides=changes)  # which go into the document, too
    return release, yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _language_model(
    reading: Reading,
    runner: dict[str, Any],
    tokens: int,
    changes: Mapping[str, Any],
    shown: str,
) -> dict[str, Any]:
    """The model and the text of an SAE; what it does not say is left out, to be given."""
    options = dict(runner.get("model_from_pretrained_kwargs") or {})
    model: dict[str, Any] = {"revision": options.pop("revision", None)}
    for key in _OF_MACHINE:
        options.pop(key, None)
    runner["model_from_pretrained_kwargs"] = options
    name, text = reading.model_name or "", reading.text
    given = reading.model_hub_id if ModelName(name).is_folder else None
    model["hub_id"] = given or ModelName(name).hub_id
    # What has a slash is that id, or a folder, perhaps of another machine.
    if "/" not in name or given or (not model["hub_id"] and ModelName(name).is_folder):
        model["name"] = name
    prefix = "language_model."
    if f"{prefix}name" in changes or changes.get(f"{prefix}hub_id") not in (
        None,
        model["hub_id"],
    ):
        model = {}  # another one, of which the SAE says nothing
    elif not (model["hub_id"] or model.get("name")):
        why = f"names {name}, which is no folder here" if name else "names no model"
        raise UserError(f"{prefix}name", f"be given by `--set`: {shown} {why}")
    part = text.part if text is not None and f"{prefix}dataset" not in changes else {}
    values = {
        **model,
        "hook_name": reading.hook_name,
        "dataset": reading.dataset_path,
        **part,
        "context_size": reading.context_size,
        "training_tokens": tokens,
    }
    return {key: value for key, value in values.items() if value}


def _runner(
    runner: Mapping[str, Any], tokens: int, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """How the SAE was trained, at a lower learning rate and with schedules that fit."""
    defaults = MultiSAETrainingRunnerConfig
    runner = {key: value for key, value in runner.items() if key not in _OF_SCHEDULE}
    kept = {"autocast": True, **runner}
    batches = runner.get("n_batches_for_norm_estimate", _ESTIMATED_BATCHES)
    kept["n_batches_for_norm_estimate"] = min(_ESTIMATED_BATCHES, batches)
    size = "train_batch_size_tokens"
    batch = changes.get(f"runner.{size}", runner.get(size, defaults.train_batch_size_tokens))
    if isinstance(batch, int) and batch > 0:  # or making a plan says so
        steps = -(-tokens // batch)
        kept |= {key: steps // part for key, part in _SCHEDULES.items()}
    kept = {key: value for key, value in kept.items() if value != vars(defaults).get(key, ())}
    return {**kept, "lr": runner.get("lr", defaults.lr) / _SLOWER}


def _sae(
    sae: SAE[Any], pinned: SAERef, record: SAERecord, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """The SAE to start from, and what its weights do not say of how to go on."""
    architecture = changes.get("sae.architecture") or c2r_architecture(sae)
    config_class_of({"architecture": architecture}, pinned.name)
    known = training_fields(sae, architecture)
    own = (record.settings or {}).get("saes", {}).get(record.sae_id, {})
    # SAELens does not say how inputs were scaled. Its default keeps the unit in which a
    # sparsity coefficient was chosen. Whitening is in the weights by now.
    unsaid = "none" if _IN_UNITS & known.keys() else ESTIMATED
    scaling = own.get("normalize_activations", unsaid)
    fields = {
        "architecture": architecture,
        "init": pinned.address,
        "normalize_activations": scaling if scaling == "none" else ESTIMATED,
    }
    if known.get("c2r_coefficient") == 0:  # it was a baseline
        fields |= {key: getattr(C2RConfigMixin, key) for key in _COEFFICIENT}
    return fields
