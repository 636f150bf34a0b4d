"""SAELens's configs, made from a release and from the SAEs that its SAEs start from."""

import copy
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeInt,
    TypeAdapter,
    ValidationError,
    create_model,
)
from sae_lens import SAE, MultiSAETrainingRunnerConfig
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY, get_sae_training_class
from sae_lens.saes.sae import TrainingSAEConfig

from sae_lens_c2r._support.errors import UserError, error_of, first_sentence
from sae_lens_c2r.models.loading import MODEL_CLASSES
from sae_lens_c2r.models.names import ModelName
from sae_lens_c2r.releases.files import explained
from sae_lens_c2r.releases.model import LanguageModel, Release, SAESpec
from sae_lens_c2r.saes.origins import pin
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.saes.start_from import starting_weights, training_fields

K_ANNEAL_STEPS = "k_anneal_steps"
NORM_MULTIPLE = "max_activation_norm_multiple"
# SAELens takes other values, and trains something else or without end.
_CHECKS: dict[str, Any] = {
    NORM_MULTIPLE: Field(ge=1),
    "store_batch_size_prompts": Field(ge=1),
    "activations_mixing_fraction": Field(ge=0, le=1),
    "lp_norm": Field(ge=0, allow_inf_nan=True),  # infinity is the maximum; NaN is refused
}
# What a release says beside SAELens's fields. `find_start` checks `init`.
_OURS: dict[type, dict[str, Any]] = {
    TrainingSAEConfig: {"seed": NonNegativeInt, "init": Any, K_ANNEAL_STEPS: NonNegativeInt},
    MultiSAETrainingRunnerConfig: {
        NORM_MULTIPLE: float | None,
        "model_class_name": Literal[MODEL_CLASSES],
        "hook_head_indices": int | None,  # the SAEs of a release share one
    },
}
NOT_SET = {  # fields of SAELens's that a release cannot set, or sets elsewhere
    *("saes", "sae", "hook_names", "model_name", "dataset_path", "context_size"),
    *("training_tokens", "device", "metadata", "output_path", "checkpoint_path"),
    *("n_checkpoints", "save_final_checkpoint", "resume_from_checkpoint"),
}


def sae_config(spec: SAESpec, device: str) -> TrainingSAEConfig:
    """SAELens's config of an SAE, or a `UserError` that names what it does not take."""
    config_class = config_class_of(spec.fields, spec.sae_id)
    left_out = {"architecture", *(spec.shared - _types(config_class).keys())}
    values = {key: value for key, value in spec.fields.items() if key not in left_out}
    values = checked_fields("sae", values, config_class)
    for name in _OURS[TrainingSAEConfig]:
        values.pop(name, None)
    sae_class, _ = get_sae_training_class(spec.fields["architecture"])
    try:
        config = config_class(**values, device=device)
        # It checks more where an SAE is made, here one without weights, and changes its config.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they come again in training
            sae_class(replace(copy.deepcopy(config), device="meta"))
    except (ArithmeticError, AssertionError, TypeError, ValueError) as error:
        raise UserError(f"SAELens refuses {spec.sae_id}. {error}") from None
    return config


def check_shared(release: Release, specs: Sequence[SAESpec]) -> None:
    """Raise a `UserError` for a field that SAEs share, and that none of them has."""
    grids = [
        (grid.sae, [each for each in specs if each.grid is grid]) for grid in release.grids
    ]
    for shared, sharing in [(release.sae, specs), *grids]:
        classes = {config_class_of(spec.fields, spec.sae_id) for spec in sharing}
        names = {"architecture"}.union(*map(_types, classes))
        for name in sorted(shared.keys() - names):
            whose = " or ".join(sorted(each.__name__ for each in classes))
            should = f"be a field of SAELens's {whose}: {', '.join(sorted(names))}"
            raise UserError(f"sae.{name}", should, repr(shared[name]))


def config_class_of(fields: Mapping[str, Any], sae_id: str) -> type[TrainingSAEConfig]:
    """SAELens's config of an SAE's architecture; a `UserError` if it has none."""
    architecture = fields.get("architecture")
    if not isinstance(architecture, str) or architecture not in SAE_TRAINING_CLASS_REGISTRY:
        known = ", ".join(sorted(SAE_TRAINING_CLASS_REGISTRY))
        raise UserError(
            "sae.architecture", f"be one of {known}", f"{architecture!r} in {sae_id}"
        )
    return get_sae_training_class(architecture)[1]


def _types(config: type) -> dict[str, Any]:
    """The fields that a release can set, beside one of SAELens's configs, and their types."""
    hints = get_type_hints(config)
    names = {each.name for each in fields(config) if each.init} - NOT_SET
    types = {name: hints[name] for name in names if not name.startswith("_")}
    types |= next((_OURS[each] for each in _OURS if issubclass(config, each)), {})
    if "normalize_activations" in types:  # of which SAELens has one more than it annotates
        types["normalize_activations"] |= Literal["constant_norm_rescale"]
    if "k" not in types:
        types.pop(K_ANNEAL_STEPS, None)
    return types


def checked_fields(
    key: str, values: Mapping[str, Any], config: type, *, strict: bool = True
) -> dict[str, Any]:
    """Values as the fields of one of SAELens's configs want them, as they are annotated."""
    types = _types(config)
    wanted: dict[str, Any] = {
        name: (Annotated[types[name], _CHECKS.get(name)], ...)
        for name in types.keys() & values.keys()
    }
    settings = ConfigDict(
        extra="forbid",
        arbitrary_types_allowed=True,
        protected_namespaces=(),
        allow_inf_nan=False,
    )
    model: Any = create_model(config.__name__, __config__=settings, **wanted)
    try:
        # As JSON, in which a list may be a tuple, and a mapping may be a config.
        valid = model.model_validate_json(json.dumps(values, default=str), strict=strict)
    except ValidationError as error:
        known = f"a field of SAELens's {config.__name__}: {', '.join(sorted(types))}"
        raise next(explained(error, lambda _: known, within=key)) from None
    found = {name: getattr(valid, name) for name in values}
    # 32 stays 32, and not 32.0.
    return {
        name: value if value == found[name] else found[name] for name, value in values.items()
    }


def find_start(
    spec: SAESpec, release: Release, device: str
) -> tuple[SAERef, TrainingSAEConfig, list[str]]:
    """Load the SAE that a release's SAE starts from; return its place, a config and notes."""
    origin, sae = pin(_init_of(spec))
    try:
        _check_inputs(sae, release.language_model)
        config_class = config_class_of(spec.fields, spec.sae_id)
        own = training_fields(sae, spec.fields["architecture"])
        if hasattr(config_class, "k") and "k" not in {**own, **spec.fields}:
            unknown = "be given: the SAE does not say how many latents fire"
            advice = "Its L0 is what `inspect --text` prints."
            raise UserError("sae.k", unknown, more=advice)
        own = checked_fields("sae", own, config_class, strict=False)  # JSON's 32.0 may be 32
        config = sae_config(replace(spec, fields={**own, **spec.fields}), device)
        starting_weights(sae, config)
    except UserError as error:
        raise error_of(f"{spec.sae_id} cannot start from {origin.name}", error) from None
    return origin, config, list(_notes(spec, origin, sae, release, config))


def _init_of(spec: SAESpec) -> SAERef:
    given = spec.fields["init"]
    try:
        init = TypeAdapter(SAERef).validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        raise UserError("sae.init", "name an SAE", more=first_sentence(error)) from None
    if (
        sum(map(bool, (init.folder, init.release, init.repo))) != 1
        or (init.folder and init.revision)
        or init.license  # what is with the SAE says it
        or bool(init.sae_id) == bool(init.folder)
    ):
        should = "have a `folder`, or else a `release` or a `repo`, with an `sae_id`"
        raise UserError("sae.init", should, given)
    return init


def _check_inputs(sae: SAE[Any], source: LanguageModel) -> None:
    """Raise where an SAE says that it encodes something else."""
    model, hook_name = sae.cfg.metadata.model_name, sae.cfg.metadata.hook_name
    name = ModelName(model or "")
    is_known = name.hub_id or name.in_transformer_lens  # or a folder
    if is_known and not name.is_of(source.hub_id or source.model, source.model):
        advice = ""
        if ModelName(source.model).is_folder:
            advice = f"If that is a copy of it, add `--set language_model.hub_id={model}`."
        raise UserError("language_model", f"be {model}, as for the SAE", source.model, advice)
    if hook_name not in (None, source.hook_name):
        should = f"be {hook_name}, as for the SAE"
        raise UserError("language_model.hook_name", should, source.hook_name)


def _notes(
    spec: SAESpec, origin: SAERef, sae: SAE[Any], release: Release, config: TrainingSAEConfig
) -> Iterator[str]:
    """A line on what an SAE starts from, and one for whatever may surprise."""
    license = origin.license or "an unknown licence"
    yield f"{spec.sae_id} starts from {origin.name}, under {license}."
    metadata, source = sae.cfg.metadata, release.language_model
    prepends = release.runner.get("prepend_bos", MultiSAETrainingRunnerConfig.prepend_bos)
    inputs = {
        "dtype": (sae.cfg.dtype, config.dtype),
        "context_size": (metadata.context_size, source.context_size),
        "prepend_bos": (metadata.prepend_bos, prepends),
    }
    for name, (before, now) in inputs.items():
        if before is not None and before != now:
            yield f"Warning: `{name}` is {now}, and was {before} when it was trained."
    for name in ("l0_coefficient", "l1_coefficient"):
        if hasattr(config, name) and name not in spec.fields:
            yield (
                f"Warning: `{name}` is {getattr(config, name)}, which is the SAE's own or "
                "SAELens's default. It depends on `normalize_activations`."
            )
