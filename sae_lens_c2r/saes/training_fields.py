"""What an SAE says of how it was trained, for those who go on."""

from dataclasses import fields
from typing import Any

from sae_lens import SAE
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY, get_sae_training_class

from sae_lens_c2r.saes.start_from import OF_MATCHING_PURSUIT, OF_THE_FUNCTION
from sae_lens_c2r.saes.thresholds import may_be_rescaled

_RESCALED = "rescale_acts_by_decoder_norm"
_OF_THE_FORM = (*OF_THE_FUNCTION, *OF_MATCHING_PURSUIT, "apply_b_dec_to_input", _RESCALED)
# Where it runs, what it is called, and what only weights that are drawn at random have.
_NOT_TAKEN = {"device", "metadata", "decoder_init_norm", "dtype", "normalize_activations"}
# Schedules are counted from the first step, and were over when the SAE was finished.
_SCHEDULES = ("_warm_up_steps", "_start_step")


def c2r_architecture(sae: SAE[Any]) -> str:
    """What to train an SAE as: what it was, with C2R, or else what its form can be.

    Returns:
        The name. What jumps and does not say how its sparsity was weighed is trained as
        BatchTopK, which needs no more than its L0.
    """
    form = sae.cfg.architecture()
    trained = sae.cfg.metadata.training_architecture or ""
    for name in (trained, f"{trained}_c2r"):
        if name.endswith("_c2r") and name in SAE_TRAINING_CLASS_REGISTRY:
            return name
    return "batchtopk_c2r" if form == "jumprelu" else f"{form}_c2r"


def training_fields(sae: SAE[Any], architecture: str) -> dict[str, Any]:
    """The fields of a training config with which an SAE stays what it is.

    Args:
        sae: An SAE in its inference form.
        architecture: What to train it as.

    Returns:
        What its form says, and what its metadata say of how it was trained, as far as the
        architecture has such fields. `k` is missing where nothing says it.
    """
    _, config_class = get_sae_training_class(architecture)
    known = {field.name for field in fields(config_class) if field.init} - _NOT_TAKEN
    said = sae.cfg.metadata.training_architecture_details or {}
    found = {
        name: value
        for name, value in said.items()
        if name in known and not name.endswith(_SCHEDULES)
    }
    for name in _OF_THE_FORM:
        if name in known and hasattr(sae.cfg, name):
            found[name] = getattr(sae.cfg, name)
    if _RESCALED in known and not hasattr(sae.cfg, _RESCALED):
        found[_RESCALED] = may_be_rescaled(sae)
    return found
