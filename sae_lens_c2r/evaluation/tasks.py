"""Which evaluations are asked for of an SAE, and where the result of each belongs."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from sae_lens import SAE
from sae_lens.synthetic import SyntheticModelConfig

from sae_lens_c2r._support.errors import UserError, first_sentence
from sae_lens_c2r._support.libraries import package_versions
from sae_lens_c2r.evaluation.catalog import KNOWN_FEATURES, SAE_LENS, WEIGHTS
from sae_lens_c2r.evaluation.hashing import config_sha256, fingerprint, weights_sha256
from sae_lens_c2r.evaluation.report import EvaluatedSAE, Evaluation
from sae_lens_c2r.evaluation.settings import Options, settings_of
from sae_lens_c2r.releases.language_models import hook_site
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.configs import synthetic_model_config
from sae_lens_c2r.training.record import RECORD, TrainingRecord, read_record

_PACKAGES = (
    *("sae-lens-c2r", "sae-lens", "sae-bench"),
    *("transformer-lens", "transformers", "torch"),
)
_hook_site = lru_cache(hook_site)  # of many SAEs alike
_NAME_LENGTH, _HASH_LENGTH = 60, 8
_ASKED = {"model", "text", "settings", "inputs"}  # what other numbers may come from


class Task(BaseModel):
    """An evaluation to be run, as the process that runs it is told of it."""

    model_config = ConfigDict(frozen=True)

    name: str
    sae: EvaluatedSAE  # without evaluations
    asked: Evaluation  # without metrics
    device: str
    source: SAERef  # from the root
    home: Path  # of the SAE's evaluations

    @property
    def title(self) -> str:
        """The evaluation's name where it is shown."""
        return f"{self.name} of {self.sae.name}"

    @property
    def folder(self) -> Path:
        """Folder of the result, named by the hash of all that is asked."""
        asked = self.asked.model_dump(mode="json", include=_ASKED)
        of_sae = [self.sae.weights_sha256, self.sae.config_sha256]
        digest = sha256(json.dumps([*of_sae, asked], sort_keys=True).encode()).hexdigest()
        return self.home / f"{self.name}-{digest[:_HASH_LENGTH]}"


def weights_task(source: SAERef, sae: SAE[Any], options: Options) -> Task:
    """The evaluation of the weights alone of an SAE in its inference form."""
    described = EvaluatedSAE(
        weights_sha256=weights_sha256(sae),
        config_sha256=config_sha256(sae.cfg),
        name=source.name,
        architecture=sae.cfg.architecture(),
        trained_as=sae.cfg.metadata.training_architecture,
        d_in=sae.cfg.d_in,
        d_sae=sae.cfg.d_sae,
        evaluations={},
    )
    versions = package_versions(*_PACKAGES)
    return Task(
        name=WEIGHTS,
        sae=described,
        asked=Evaluation(device=options.device, versions=versions, metrics={}),
        device=options.device,
        source=replace(source, folder=source.folder and source.folder.resolve()),
        home=options.out / _folder_name(source, described),
    )


def _folder_name(source: SAERef, sae: EvaluatedSAE) -> str:
    """A name that tells an SAE from all others, however they are called."""
    digest = sha256(f"{source.place} {sae.weights_sha256} {sae.config_sha256}".encode())
    kept = "".join(char if char.isalnum() or char in "._-" else "_" for char in source.name)
    name = kept[-_NAME_LENGTH:].strip("._-") or "sae"
    return f"{name}-{digest.hexdigest()[:_HASH_LENGTH]}"


def model_tasks(
    of_weights: Task, sae: SAE[Any], options: Options, *, on_error: Callable[[str], None]
) -> list[Task]:
    """The evaluations of an SAE with what it was trained on: a model, or known features."""
    record = record_of_features(of_weights.source)
    own = SAE_LENS if record is None else KNOWN_FEATURES
    tasks = []
    for name in [*([own] if options.sae_lens else []), *options.sae_bench]:
        task = of_weights.model_copy(update={"name": name})
        changes = options.changes.get(name, {})
        try:
            if record is None:
                asked = _of_language_model(name, sae, options)
            elif name == KNOWN_FEATURES and task.source.folder is not None:
                features_config(record, options.device)
                asked = {"inputs": {RECORD: fingerprint(task.source.folder / RECORD)}}
            else:
                raise UserError("it needs a language model. Found known features.")
            asked["settings"] = settings_of(name, changes, model=asked.get("model"))
        except UserError as error:
            on_error(f"{task.title}: {error}")
            continue
        evaluation = task.asked.model_copy(update=asked)
        tasks.append(task.model_copy(update={"asked": evaluation}))
    return tasks


def _of_language_model(name: str, sae: SAE[Any], options: Options) -> dict[str, Any]:
    metadata = sae.cfg.metadata
    model = options.model or metadata.model_name
    should = {
        "`model` or `metadata.model_name`": model,
        "`metadata.hook_name`": metadata.hook_name,
    }
    for key, value in should.items():
        if not isinstance(value, str) or not value:
            raise UserError(f"{key} should be a name. Found {value}.")
    text = options.text if name == SAE_LENS else None
    if name == SAE_LENS:
        reads = text or metadata.dataset_path
    else:
        reads = options.data
        _check_fit(sae, str(model))
    named = (model, *options.changes.get(name, {}).values(), reads)
    paths = [path for path in map(Path, map(str, named)) if path.is_absolute()]
    hashes = {str(path): fingerprint(path) for path in paths if path.exists()}
    return {"model": model, "text": text, "inputs": hashes}


def _check_fit(sae: SAE[Any], model: str) -> None:
    """Refuse an SAE whose hook or width SAEBench would not find in a model."""
    hook_name = sae.cfg.metadata.hook_name or ""
    if not re.match(r"blocks\.\d+\.", hook_name):
        raise UserError(
            "`hook_name` of the SAE should be in one of TransformerLens's blocks, such as "
            f"blocks.0.hook_resid_post. Found {hook_name}."
        )
    try:
        width, _ = _hook_site(model, hook_name)
    except UserError:
        raise
    except Exception as error:  # transformers, the Hub and TransformerLens raise many kinds
        raise UserError(
            f"`model` should be one that TransformerLens loads. Found {model}. "
            f"{first_sentence(error)}"
        ) from error
    if width is not None and sae.cfg.d_in != width:
        raise UserError(
            f"the SAE should have inputs of the model's width, {width} in {model}. "
            f"Found {sae.cfg.d_in}."
        )


def record_of_features(source: SAERef) -> TrainingRecord | None:
    """The record of the training of an SAE on known features; `None` if it has none."""
    record = read_record(source.folder) if source.folder else None
    return record if record is not None and record.features is not None else None


def features_config(record: TrainingRecord, device: str) -> SyntheticModelConfig:
    """SAELens's config of the features; a UserError if `device` would draw others of it."""
    assert record.features is not None, "of an SAE of known features"
    config = synthetic_model_config(record.features.config)
    if config.seed is None:
        raise UserError(
            f"{RECORD} should have a seed among the features' config: without one SAELens does "
            "not draw the same features again. Found none."
        )
    trained_on = torch.device((record.device or device).partition(" ")[0]).type
    if torch.device(device).type != trained_on:
        raise UserError(
            f"`device` should be {trained_on}, where SAELens drew the features for training: "
            f"elsewhere it draws others. Found {device}."
        )
    return config
