"""Registering architectures with SAELens, and C2R for any architecture in one line."""

from dataclasses import dataclass
from typing import Any

from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY, register_sae_training_class
from sae_lens.saes.sae import TrainingSAE, TrainingSAEConfig

from sae_lens_c2r._support.checks import message
from sae_lens_c2r.architectures.c2r import C2RConfigMixin, C2RMixin

Architecture = tuple[type[TrainingSAE[Any]], type[TrainingSAEConfig]]


def with_c2r(backbone: str | Architecture) -> Architecture:
    """Make the C2R version of a training architecture, registered as `<its name>_c2r`.

    It is made of the same mixins as the architectures of this package, has the backbone's
    fields and the `c2r_` ones, and saves in the backbone's own inference form.

    Args:
        backbone: Name of a registered training architecture, or its SAE and config classes.

    Returns:
        The SAE class and the config class, the same at every call.

    Raises:
        TypeError: If `backbone` is neither a name nor such a pair of classes.
        ValueError: If no such architecture is registered, it has C2R already, or another
            package's class is registered as `<its name>_c2r`.
    """
    sae_class, config_class = _resolve(backbone)
    name = f"{config_class.architecture()}_c2r"
    registered = SAE_TRAINING_CLASS_REGISTRY.get(name)
    if registered is not None and [cls.__bases__ for cls in registered] == [
        (C2RMixin, sae_class),
        (C2RConfigMixin, config_class),
    ]:
        return registered

    regularized_config = dataclass(_mixed(C2RConfigMixin, config_class))
    regularized = _mixed(C2RMixin, sae_class)
    register_architecture(regularized, regularized_config)
    return regularized, regularized_config


def _resolve(backbone: str | Architecture) -> Architecture:
    if isinstance(backbone, str):
        if backbone not in SAE_TRAINING_CLASS_REGISTRY:
            names = ", ".join(map(repr, SAE_TRAINING_CLASS_REGISTRY))
            raise ValueError(message("backbone", f"be one of {names}", backbone))
        backbone = SAE_TRAINING_CLASS_REGISTRY[backbone]
    match backbone:
        case [type() as sae_class, type() as config_class] if issubclass(
            sae_class, TrainingSAE
        ) and issubclass(config_class, TrainingSAEConfig):
            if issubclass(config_class, C2RConfigMixin):
                should = "be an architecture that has no C2R yet"
                raise ValueError(message("backbone", should, config_class.architecture()))
            return sae_class, config_class
    should = "be a name, or a pair of subclasses of TrainingSAE and TrainingSAEConfig"
    raise TypeError(message("backbone", should, backbone))


def _mixed(mixin: type, backbone: type) -> Any:
    """`class ...C2RTrainingSAE(mixin, backbone)`, as if written beside the backbone."""
    qualname = backbone.__qualname__.replace("TrainingSAE", "C2RTrainingSAE")
    if qualname == backbone.__qualname__:
        qualname += "C2R"
    body = {
        "__module__": backbone.__module__,
        "__qualname__": qualname,
        "__doc__": f"{backbone.__name__} with C2R.",
    }
    return type(backbone)(qualname.rpartition(".")[2], (mixin, backbone), body)


def register_architecture(
    sae_class: type[TrainingSAE[Any]], config_class: type[TrainingSAEConfig]
) -> None:
    """Register a training architecture by its config's name; an error if the name is taken."""
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
