"""What an SAE of a plan starts from, where it is not from weights drawn at random."""

from dataclasses import dataclass, replace
from typing import Any

from sae_lens import SAE, TrainingSAE
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY
from sae_lens.saes.sae import TrainingSAEConfig

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.releases.init import Init, init_of
from sae_lens_c2r.releases.language_models import official_name
from sae_lens_c2r.releases.model import LanguageModel, ReleaseError, SAESpec, SyntheticModel
from sae_lens_c2r.saes.origin import Origin, find_origin
from sae_lens_c2r.saes.sources import Source, source_of_folder
from sae_lens_c2r.saes.start_from import start_from, starting_weights
from sae_lens_c2r.saes.training_fields import training_fields
from sae_lens_c2r.training.configs import checked_fields, sae_config


@dataclass(frozen=True)
class Start:
    """An SAE that another one starts from.

    Args:
        origin: Which SAE.
        config: SAELens's config of what starts from it: what the release says, and else what
            the SAE says of itself.
        defaults: The fields on which how it is trained depends, and which neither of the two
            says.
    """

    origin: Origin
    config: TrainingSAEConfig
    defaults: tuple[str, ...]

    def begin(self, config: TrainingSAEConfig) -> TrainingSAE[Any]:
        """A training SAE that does what the SAE does."""
        return start_from(self.origin.load(), config)


def find_start(
    spec: SAESpec, source: LanguageModel | SyntheticModel, device: str
) -> Start | None:
    """What an SAE of a release starts from, once it is known that it can.

    Args:
        spec: The SAE.
        source: What it will be trained on.
        device: Where.

    Returns:
        What it starts from; `None` if it is not to start from an SAE.

    Raises:
        ReleaseError: If its `init` names none.
        UserError: If that cannot be loaded, is of other inputs, or cannot be trained on.
    """
    init = init_of(spec)
    if init is None:
        return None
    origin, sae = find_origin(source_of(init))
    try:
        _check_inputs(origin, source)
        said = _said_of(sae, spec)
        config = sae_config(replace(spec, fields={**said, **spec.fields}), device)
        starting_weights(sae, config)
    except UserError as error:
        raise ReleaseError(
            f"{spec.sae_id} cannot start from {origin.source.name}. {error}"
        ) from None
    weighed = ("l0_coefficient", "l1_coefficient")
    unsaid = (name for name in weighed if hasattr(config, name))
    return Start(
        origin, config, tuple(name for name in unsaid if name not in {**said, **spec.fields})
    )


def source_of(init: Init) -> Source:
    """Where the SAE comes from that an `init` names."""
    if init.folder is not None:
        return source_of_folder(init.folder)
    release = init.release or init.repo
    name = f"{release} {init.sae_id}"
    return Source(name, release=release, sae_id=init.sae_id, revision=init.revision)


def _said_of(sae: SAE[Any], spec: SAESpec) -> dict[str, Any]:
    architecture = spec.fields.get("architecture")
    if architecture not in SAE_TRAINING_CLASS_REGISTRY:
        return {}  # `sae_config` says which there are
    said = training_fields(sae, architecture)
    _, config_class = SAE_TRAINING_CLASS_REGISTRY[architecture]
    if hasattr(config_class, "k") and "k" not in {**said, **spec.fields}:
        raise UserError("`sae.k` should be given: the SAE does not say with how many latents.")
    return checked_fields("sae", said, config_class, strict=False)  # 32.0 of JSON may be 32


def _check_inputs(origin: Origin, source: LanguageModel | SyntheticModel) -> None:
    """Raise where an SAE says that it encodes something else."""
    own_model, own_hook = (origin.metadata.get(key) for key in ("model_name", "hook_name"))
    if isinstance(source, SyntheticModel):
        if own_model is not None:
            raise UserError(
                f"It encodes activations of {own_model}, and not those of known features."
            )
        return
    wanted = {name.lower() for name in (source.hub_id, source.name) if name}
    if own_model is not None and wanted.isdisjoint(
        {own_model.lower(), (official_name(own_model) or own_model).lower()}
    ):
        raise UserError(
            f"`language_model` should be that of the SAE, {own_model}. Found "
            f"{source.name or source.hub_id}."
        )
    if own_hook is not None and own_hook != source.hook_name:
        raise UserError(
            f"`hook_name` should be that of the SAE, {own_hook}. Found {source.hook_name}."
        )
