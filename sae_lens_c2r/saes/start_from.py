"""A training SAE that starts as an existing SAE: the same function, ready to be trained."""

from dataclasses import fields
from typing import Any

import torch
from sae_lens import SAE, TrainingSAE, saes
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY, get_sae_training_class
from sae_lens.saes.sae import TrainingSAEConfig
from torch import Tensor

from sae_lens_c2r._support.errors import UserError

# The inference forms that a training form can begin as. TopK's stand after what derives of it.
_FORMS: dict[type, tuple[str, ...]] = {
    saes.BatchTopKTrainingSAE: ("jumprelu", "standard"),
    saes.AbsTopKTrainingSAE: ("abstopk",),
    saes.TopKTrainingSAE: ("topk",),
    saes.JumpReLUTrainingSAE: ("jumprelu", "standard"),
    saes.GatedTrainingSAE: ("gated",),
    saes.StandardTrainingSAE: ("standard",),
    saes.MatchingPursuitTrainingSAE: ("matching_pursuit",),
}
# Of a config, what says which function an SAE is: the last three are Matching Pursuit's.
_OF_THE_FUNCTION = (
    *("d_in", "d_sae", "reshape_activations", "k"),
    *("residual_threshold", "max_iterations", "stop_on_duplicate_support"),
)
_BIASES = ("b_enc", "b_gate", "b_mag")  # of encoders
# Of SAELens's ways to normalize activations, those that it estimates from batches.
ESTIMATED = "expected_average_only_in"
NEEDS_ESTIMATE = {ESTIMATED, "covariance_whitening"}
_RESCALED = "rescale_acts_by_decoder_norm"
# Fields that say where an SAE runs, what it is called, or how random weights are drawn.
_NOT_TAKEN = {"device", "metadata", "decoder_init_norm", "dtype", "normalize_activations"}
# Schedules are counted from the first step, and were over when the SAE was finished.
_SCHEDULES = ("_warm_up_steps", "_start_step")
_ALIKE = 1e-5  # relative: what saving in float32, and norms that are 1 but for rounding, leave

Weights = dict[str, Tensor]


def start_from(sae: SAE[Any], config: TrainingSAEConfig) -> TrainingSAE[Any]:
    """A training SAE that does what an SAE does.

    Saved before any training, it reconstructs as the SAE does. In the BatchTopK family it does
    so by its learned threshold, and in training if `k` is the SAE's L0. If SAELens is to scale
    the inputs, call `scale_inputs` next.

    Args:
        sae: An SAE in its inference form.
        config: What to train it as.

    Returns:
        The training SAE.

    Raises:
        UserError: If the SAE cannot be trained on, or not with this config.
    """
    weights = starting_weights(sae, config)
    if getattr(config, _RESCALED, False):
        # Adam's steps do not know the size of a weight. Saved with decoder rows of norm 1,
        # latents that fire rarely have a small encoder, which the first steps would turn: many
        # would die. With encoder columns of norm 1 the function is the same.
        norms = weights["W_enc"].norm(dim=0)
        weights = _scaled(weights, 1 / norms.where(norms > 0, 1.0))
    sae_class, _ = get_sae_training_class(config.architecture())
    begun = sae_class(config)
    begun.load_state_dict(weights)
    return begun


@torch.no_grad()
def starting_weights(sae: SAE[Any], config: TrainingSAEConfig) -> Weights:
    """The weights with which `start_from` begins, in float64, or its UserError."""
    sae_class, _ = get_sae_training_class(config.architecture())
    family = next((family for family in _FORMS if issubclass(sae_class, family)), None)
    _check_configs(sae, config, _FORMS[family] if family else ())
    weights = _linear_weights(sae, config)
    if family is saes.BatchTopKTrainingSAE:
        rescaled, rounding = getattr(config, _RESCALED), _rounding(sae)
        return _with_one_threshold(weights, thresholds_of(sae), rescaled, rounding)
    if family is saes.JumpReLUTrainingSAE:
        return {**weights, "threshold": thresholds_of(sae)}
    if family in (saes.TopKTrainingSAE, saes.AbsTopKTrainingSAE):
        return _ranked_alike(weights, getattr(sae.cfg, _RESCALED), getattr(config, _RESCALED))
    return weights


@torch.no_grad()
def scale_inputs(sae: TrainingSAE[Any], factor: float) -> None:
    """Have a training SAE do on scaled inputs what it did on the inputs themselves.

    Its activations are scaled likewise. This is not what undoes SAELens's
    `fold_activation_norm_scaling_factor`, after which they keep their size.
    """
    for name in (*_BIASES, "b_dec", "threshold", "topk_threshold"):
        value = getattr(sae, name, None)
        if isinstance(value, Tensor):
            value.mul_(factor)


def _check_configs(sae: SAE[Any], config: TrainingSAEConfig, forms: tuple[str, ...]) -> None:
    """Raise where an SAE cannot be trained on as a config says."""
    form = sae.cfg.architecture()
    if form not in forms:
        raise UserError(
            f"An SAE to be trained as {config.architecture()} should be saved as "
            f"{' or '.join(forms) or 'no other'}. Found {form}."
        )
    if sae.cfg.normalize_activations != "none":
        found = repr(sae.cfg.normalize_activations)
        raise UserError("normalize_activations", "be none in the SAE to start from", found)
    if config.normalize_activations not in ("none", ESTIMATED):
        should = f"be none or {ESTIMATED} where an SAE starts from another"
        found = repr(config.normalize_activations)
        raise UserError("sae.normalize_activations", should, found)
    for name in _OF_THE_FUNCTION:
        own = getattr(sae.cfg, name, None)
        wanted = getattr(config, name, own)
        if hasattr(sae.cfg, name) and own != wanted:
            should = f"be {own!r}, as in the SAE to start from"
            raise UserError(f"sae.{name}", should, repr(wanted))


def _linear_weights(sae: SAE[Any], config: TrainingSAEConfig) -> Weights:
    """Encoder, decoder and biases; what is subtracted of the inputs goes into the biases."""
    weights = {name: value.double() for name, value in sae.state_dict().items()}
    weights.pop("threshold", None)
    added = float(config.apply_b_dec_to_input) - float(sae.cfg.apply_b_dec_to_input)
    if added and "W_enc" in weights:
        shift = added * (weights["b_dec"] @ weights["W_enc"])
        for name in weights.keys() & _BIASES:
            scale = weights["r_mag"].exp() if name == "b_mag" else 1.0
            weights[name] = weights[name] + scale * shift
    elif added and weights["b_dec"].any():  # Matching Pursuit has no biases
        value = str(sae.cfg.apply_b_dec_to_input).lower()
        should = f"be {value}, as in the SAE to start from"
        raise UserError("sae.apply_b_dec_to_input", should)
    return weights


def _scaled(weights: Weights, factors: Tensor) -> Weights:
    """The weights of latents that are so many times as large, with smaller decoder rows."""
    return {
        **weights,
        "W_enc": weights["W_enc"] * factors,
        "b_enc": weights["b_enc"] * factors,
        "W_dec": weights["W_dec"] / factors[:, None],
    }


def _ranked_alike(weights: Weights, was_rescaled: bool, rescaled: bool) -> Weights:
    """The weights with which TopK ranks latents as before, whether by decoder norms or not."""
    norms = weights["W_dec"].norm(dim=-1)
    if was_rescaled and not rescaled:
        return _scaled(weights, norms)
    unit = torch.allclose(norms, torch.ones_like(norms), rtol=0, atol=1e-6)
    if was_rescaled == rescaled or unit:
        return weights
    between = f"from {norms.min():.3g} to {norms.max():.3g}"
    should = f"be false, as in the SAE to start from, which has decoder rows of norms {between}"
    raise UserError("sae.rescale_acts_by_decoder_norm", should)


def thresholds_of(sae: SAE[Any]) -> Tensor:
    """The threshold of each latent, in float64: 0 where a ReLU is all there is."""
    if not isinstance(sae, saes.JumpReLUSAE):
        return torch.zeros(sae.cfg.d_sae, dtype=torch.float64, device=sae.W_dec.device)
    return sae.threshold.detach().double().clamp(min=0)  # below that, its ReLU decides


def _with_one_threshold(
    weights: Weights, thresholds: Tensor, rescaled: bool, rounding: float
) -> Weights:
    """The weights of a BatchTopK SAE, whose latents share `topk_threshold`, or a UserError."""
    between = f"thresholds from {thresholds.min():.3g} to {thresholds.max():.3g}"
    if rescaled:
        norms = weights["W_dec"].norm(dim=-1)
        if not _may_be_rescaled(thresholds, norms, rounding):
            should = "be false where decoder rows are 0, or latents have different thresholds"
            found = f"{int((norms == 0).sum())} such rows, and {between}"
            raise UserError("sae.rescale_acts_by_decoder_norm", should, found)
        thresholds = thresholds * norms
    if _are_alike(thresholds, rounding):
        return {**weights, "topk_threshold": thresholds.median()}
    if not (thresholds > 0).all():
        should = "be `jumprelu` or `jumprelu_c2r` where only some latents have the threshold 0"
        raise UserError("sae.architecture", should, between)
    # A latent may be scaled, and its decoder row by the inverse, until the threshold of all is
    # its own: the geometric mean, by which latents stay as large as they are on average.
    shared = thresholds.log().mean().exp()
    return {**_scaled(weights, shared / thresholds), "topk_threshold": shared}


def _may_be_rescaled(thresholds: Tensor, norms: Tensor, rounding: float) -> bool:
    """Whether one threshold serves all latents in units of unit decoder rows."""
    return bool((norms > 0).all()) and _are_alike(thresholds * norms, rounding)


def _are_alike(thresholds: Tensor, rounding: float) -> bool:
    return bool(thresholds.max() - thresholds.min() <= rounding * thresholds.max())


def _rounding(sae: SAE[Any]) -> float:
    """How far, relatively, saving an SAE may have moved norms that were 1."""
    return max(_ALIKE, torch.finfo(sae.W_dec.dtype).eps)


def c2r_architecture(sae: SAE[Any]) -> str:
    """The architecture to fine-tune an SAE as: its own with C2R, or one that fits its form."""
    form = sae.cfg.architecture()
    trained = sae.cfg.metadata.training_architecture or ""
    for name in (trained, f"{trained}_c2r"):
        if name.endswith("_c2r") and name in SAE_TRAINING_CLASS_REGISTRY:
            return name
    # A JumpReLU without its sparsity coefficient becomes a BatchTopK, which needs only the L0.
    name = "batchtopk_c2r" if form == "jumprelu" else f"{form}_c2r"
    if name not in SAE_TRAINING_CLASS_REGISTRY:
        raise UserError("architecture", f"be given: a {form} SAE has no form with C2R")
    return name


def training_fields(sae: SAE[Any], architecture: str) -> dict[str, Any]:
    """The fields of a training config with which an SAE stays what it is."""
    _, config_class = get_sae_training_class(architecture)
    known = {field.name for field in fields(config_class) if field.init} - _NOT_TAKEN
    said = sae.cfg.metadata.training_architecture_details or {}
    found = {name: said[name] for name in said if not name.endswith(_SCHEDULES)}
    for name in (*_OF_THE_FUNCTION, "apply_b_dec_to_input", _RESCALED):
        if hasattr(sae.cfg, name):
            found[name] = getattr(sae.cfg, name)
    if _RESCALED in known and not hasattr(sae.cfg, _RESCALED):
        norms = sae.W_dec.detach().double().norm(dim=-1)
        found[_RESCALED] = _may_be_rescaled(thresholds_of(sae), norms, _rounding(sae))
    return {name: value for name, value in found.items() if name in known}
