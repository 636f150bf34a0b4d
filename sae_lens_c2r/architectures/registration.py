"""Our names in SAELens's registry."""

from typing import Any

from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY, register_sae_training_class
from sae_lens.saes.sae import TrainingSAE, TrainingSAEConfig


def register_architecture(
    sae_class: type[TrainingSAE[Any]], config_class: type[TrainingSAEConfig]
) -> None:
    """Register a training architecture under the name that its config gives it.

    Raises:
        ValueError: If the name belongs to another class, which stays registered.
    """
    name = config_class.architecture()
    if name not in SAE_TRAINING_CLASS_REGISTRY:
        register_sae_training_class(name, sae_class, config_class)
        return
    owner, _ = SAE_TRAINING_CLASS_REGISTRY[name]
    if _full_name(owner) != _full_name(sae_class):
        raise ValueError(
            f"The architecture {name!r} of {_full_name(sae_class)} is already registered, by "
            f"{_full_name(owner)}. It was left as it is: uninstall one of the two packages."
        )
    SAE_TRAINING_CLASS_REGISTRY[name] = (sae_class, config_class)  # our module, loaded again


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
