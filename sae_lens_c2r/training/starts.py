"""SAEs that start from an SAE: the key `init` of an SAE of a release."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sae_lens import SAE, MultiSAETrainingRunnerConfig
from sae_lens.constants import SAE_CFG_FILENAME
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY
from sae_lens.saes.sae import TrainingSAEConfig

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import first_problem
from sae_lens_c2r.releases.language_models import official_name
from sae_lens_c2r.releases.model import (
    LanguageModel,
    Release,
    ReleaseError,
    SAESpec,
    SyntheticModel,
)
from sae_lens_c2r.saes.sae_ref import SAERef, allows_derivatives
from sae_lens_c2r.saes.start_from import starting_weights, training_fields
from sae_lens_c2r.training.configs import checked_fields, sae_config


def find_start(
    spec: SAESpec, release: Release, device: str
) -> tuple[SAERef, TrainingSAEConfig, list[str]]:
    """Load the SAE that one of a release starts from: which, the config, and notes."""
    origin, sae = _init_of(spec).pin()
    try:
        _check_inputs(sae, release.source)
        own = _own_fields(sae, spec)
        config = sae_config(replace(spec, fields={**own, **spec.fields}), device)
        starting_weights(sae, config)
    except UserError as error:
        raise ReleaseError(f"{spec.sae_id} cannot start from {origin.name}. {error}") from None
    return origin, config, list(_notes(spec, origin, sae, release, config, own))


def _init_of(spec: SAESpec) -> SAERef:
    given = spec.fields["init"]
    try:
        init = TypeAdapter(SAERef).validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        problem = first_problem(error).removeprefix("``: ")
        raise ReleaseError(f"`sae.init` should name an SAE. {problem}") from None
    if (
        sum(map(bool, (init.folder, init.release, init.repo))) != 1
        or bool(init.sae_id) == bool(init.folder)
        or (init.folder and init.revision)
        or init.license  # what is with the SAE says it
    ):
        raise ReleaseError(
            "`sae.init` should have a `folder`, or else a `release` or a `repo` with an "
            f"`sae_id` and perhaps a `revision`. Found {given!r}."
        )
    if init.folder and not (init.folder / SAE_CFG_FILENAME).is_file():
        raise UserError(f"{init.folder}: should be a folder with a {SAE_CFG_FILENAME}.")
    return init


def _own_fields(sae: SAE[Any], spec: SAESpec) -> dict[str, Any]:
    """The fields in which an SAE says how it was trained."""
    architecture = spec.fields.get("architecture")
    if architecture not in SAE_TRAINING_CLASS_REGISTRY:
        return {}  # `sae_config` says which there are
    own = training_fields(sae, architecture)
    _, config_class = SAE_TRAINING_CLASS_REGISTRY[architecture]
    if hasattr(config_class, "k") and "k" not in {**own, **spec.fields}:
        raise UserError("`sae.k` should be given: the SAE does not say with how many latents.")
    return checked_fields("sae", own, config_class, strict=False)  # 32.0 of JSON may be 32


def _check_inputs(sae: SAE[Any], source: LanguageModel | SyntheticModel) -> None:
    """Raise where an SAE says that it encodes something else."""
    model, hook_name = sae.cfg.metadata.model_name, sae.cfg.metadata.hook_name
    if isinstance(source, SyntheticModel):
        if model is not None:
            raise UserError(
                f"It encodes activations of {model}, and not those of known features."
            )
        return
    wanted = {name.lower() for name in (source.hub_id, source.name) if name}
    if model is not None:
        names = {model.lower(), (official_name(model) or model).lower()}
        if wanted.isdisjoint(names):
            raise UserError(
                f"`language_model` should be that of the SAE, {model}. Found "
                f"{source.name or source.hub_id}."
            )
    if hook_name is not None and hook_name != source.hook_name:
        raise UserError(
            f"`hook_name` should be that of the SAE, {hook_name}. Found {source.hook_name}."
        )


def _notes(
    spec: SAESpec,
    origin: SAERef,
    sae: SAE[Any],
    release: Release,
    config: TrainingSAEConfig,
    own: dict[str, Any],
) -> Iterator[str]:
    """A line on what an SAE starts from, and one for whatever may surprise."""
    license = origin.license or "a licence that is not known"
    yield f"{spec.sae_id} starts from {origin.name}, under {license}."
    if not allows_derivatives(origin.license):
        yield (
            f"Warning: {origin.license} does not allow to publish what is made of it. "
            "`upload` will ask for `--license`."
        )
    inputs: dict[str, tuple[Any, Any]] = {"dtype": (sae.cfg.dtype, config.dtype)}
    if isinstance(release.source, LanguageModel):
        prepends = release.runner.get("prepend_bos", MultiSAETrainingRunnerConfig.prepend_bos)
        inputs["context_size"] = (sae.cfg.metadata.context_size, release.source.context_size)
        inputs["prepend_bos"] = (sae.cfg.metadata.prepend_bos, prepends)
    for name, (before, now) in inputs.items():
        if before is not None and before != now:
            yield f"Warning: `{name}` is {now}, and was {before} when it was trained."
    for name in ("l0_coefficient", "l1_coefficient"):
        if hasattr(config, name) and name not in {**own, **spec.fields}:
            value = getattr(config, name)
            yield f"Warning: it does not say its `{name}`. It is {value}, SAELens's default."
