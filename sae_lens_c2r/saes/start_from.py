"""A training SAE that begins as an SAE that exists: its function, in a form that learns."""

from typing import Any

import torch
from sae_lens import SAE, TrainingSAE
from sae_lens.registry import get_sae_training_class
from sae_lens.saes import (
    AbsTopKTrainingSAE,
    BatchTopKTrainingSAE,
    GatedTrainingSAE,
    JumpReLUTrainingSAE,
    MatchingPursuitTrainingSAE,
    StandardTrainingSAE,
    TopKTrainingSAE,
)
from sae_lens.saes.sae import TrainingSAEConfig
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.saes.thresholds import Weights, thresholds_of, with_one_threshold

# The inference forms that a training form can begin as. TopK's stand after what derives of it.
_FORMS: dict[type, tuple[str, ...]] = {
    BatchTopKTrainingSAE: ("jumprelu", "standard"),
    AbsTopKTrainingSAE: ("abstopk",),
    TopKTrainingSAE: ("topk",),
    JumpReLUTrainingSAE: ("jumprelu", "standard"),
    GatedTrainingSAE: ("gated",),
    StandardTrainingSAE: ("standard",),
    MatchingPursuitTrainingSAE: ("matching_pursuit",),
}
FORMS = sorted({form for forms in _FORMS.values() for form in forms})
# Of a config, what says which function an SAE is.
OF_THE_FUNCTION = ("d_in", "d_sae", "reshape_activations", "k")
OF_MATCHING_PURSUIT = ("residual_threshold", "max_iterations", "stop_on_duplicate_support")
_BIASES = ("b_enc", "b_gate", "b_mag")  # of encoders
ESTIMATED = "expected_average_only_in"


def start_from(sae: SAE[Any], config: TrainingSAEConfig) -> TrainingSAE[Any]:
    """A training SAE that does what an SAE does.

    What it is saved as, before it has been trained, reconstructs as the SAE does. Of the
    BatchTopK family that is so by the learned threshold, and while it is trained where `k` is
    the SAE's L0. If SAELens is to scale the inputs, `scale_inputs` has to follow.

    Args:
        sae: An SAE in its inference form.
        config: What to train it as.

    Returns:
        The training SAE.

    Raises:
        UserError: If the SAE is none that can be trained on, or not as this.
    """
    weights = starting_weights(sae, config)
    sae_class, _ = get_sae_training_class(config.architecture())
    begun = sae_class(config)
    with torch.no_grad():
        for name, value in weights.items():
            getattr(begun, name).copy_(value)
    return begun


@torch.no_grad()
def starting_weights(sae: SAE[Any], config: TrainingSAEConfig) -> Weights:
    """The weights with which `start_from` begins, in float64, or its UserError."""
    sae_class, _ = get_sae_training_class(config.architecture())
    family = next((family for family in _FORMS if issubclass(sae_class, family)), None)
    _check_form(sae, config, _FORMS[family] if family else ())
    _check_config(sae, config)
    weights = _linear_weights(sae, config)
    if family is BatchTopKTrainingSAE:
        rescaled = config.rescale_acts_by_decoder_norm  # type: ignore[attr-defined]
        _check_rows(weights["W_dec"], rescaled=rescaled)
        return with_one_threshold(weights, thresholds_of(sae), rescaled=rescaled)
    if family is JumpReLUTrainingSAE:
        return {**weights, "threshold": thresholds_of(sae)}
    if family in (TopKTrainingSAE, AbsTopKTrainingSAE):
        return _ranked_alike(weights, sae.cfg, config)
    return weights


@torch.no_grad()
def scale_inputs(sae: TrainingSAE[Any], factor: float) -> None:
    """Have a training SAE do on scaled inputs what it did on the inputs themselves.

    Its activations are scaled likewise. This is not what undoes SAELens's
    `fold_activation_norm_scaling_factor`, after which they keep their size.

    Args:
        sae: The SAE, changed in place.
        factor: What the inputs are multiplied by from now on.
    """
    for name in (*_BIASES, "b_dec", "threshold", "topk_threshold"):
        value = getattr(sae, name, None)
        if isinstance(value, Tensor):
            value.mul_(factor)


def _check_form(sae: SAE[Any], config: TrainingSAEConfig, forms: tuple[str, ...]) -> None:
    form = sae.cfg.architecture()
    if form not in FORMS:
        raise UserError(f"An SAE to start from should be {_any_of(FORMS)}. Found {form}.")
    if form not in forms:
        should = f"be saved as {_any_of(forms)}" if forms else "be none to start with"
        raise UserError(
            f"An SAE to be trained as {config.architecture()} should {should}. Found {form}."
        )
    if sae.cfg.normalize_activations != "none":
        raise UserError(
            "An SAE to start from should take its inputs as they are. Found "
            f"`normalize_activations = {sae.cfg.normalize_activations!r}`."
        )
    if config.normalize_activations not in ("none", ESTIMATED):
        raise UserError(
            f"`sae.normalize_activations` should be none or {ESTIMATED} where an SAE starts "
            f"from another. Found {config.normalize_activations!r}."
        )


def _any_of(names: list[str] | tuple[str, ...]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _check_config(sae: SAE[Any], config: TrainingSAEConfig) -> None:
    """Raise where two configs do not agree on what decides what an SAE does."""
    for name in (*OF_THE_FUNCTION, *OF_MATCHING_PURSUIT):
        if not (hasattr(sae.cfg, name) and hasattr(config, name)):
            continue
        own, wanted = getattr(sae.cfg, name), getattr(config, name)
        if own != wanted:
            raise UserError(
                f"`sae.{name}` should be {own!r}, that of the SAE to start from. Found "
                f"{wanted!r}."
            )


def _check_rows(W_dec: Tensor, *, rescaled: bool) -> None:
    n_zero = int((W_dec.norm(dim=-1) == 0).sum())
    if rescaled and n_zero:
        raise UserError(
            "`rescale_acts_by_decoder_norm` should be false where decoder rows are 0: it "
            f"divides by their norms. Found {n_zero} of them."
        )


def _linear_weights(sae: SAE[Any], config: TrainingSAEConfig) -> Weights:
    """Encoder, decoder and biases; what is subtracted of the inputs goes into the biases."""
    weights = {name: value.double() for name, value in sae.state_dict().items()}
    weights.pop("threshold", None)
    added = float(config.apply_b_dec_to_input) - float(sae.cfg.apply_b_dec_to_input)
    if not added:
        return weights
    if "W_enc" not in weights:  # Matching Pursuit has no biases, and no b_dec unless it is
        if weights["b_dec"].any():  # subtracted of the inputs
            raise UserError(
                "`sae.apply_b_dec_to_input` should be "
                f"{str(sae.cfg.apply_b_dec_to_input).lower()}, that of the SAE to start from."
            )
        return weights
    shift = added * (weights["b_dec"] @ weights["W_enc"])
    for name in _BIASES:
        if name in weights:
            scale = weights["r_mag"].exp() if name == "b_mag" else 1.0
            weights[name] = weights[name] + scale * shift
    return weights


def _ranked_alike(weights: Weights, own: Any, config: Any) -> Weights:
    """The weights with which TopK ranks latents as before, whether by decoder norms or not."""
    norms = weights["W_dec"].norm(dim=-1)
    if own.rescale_acts_by_decoder_norm == config.rescale_acts_by_decoder_norm:
        return weights
    if own.rescale_acts_by_decoder_norm:  # the norms go into the encoder
        return {
            **weights,
            "W_enc": weights["W_enc"] * norms,
            "b_enc": weights["b_enc"] * norms,
            "W_dec": weights["W_dec"] / norms[:, None],
        }
    if torch.allclose(norms, torch.ones_like(norms), rtol=0, atol=1e-6):
        return weights
    raise UserError(
        "`rescale_acts_by_decoder_norm` should be false, that of the SAE to start from, which "
        f"has decoder rows of norms from {norms.min():.3g} to {norms.max():.3g}."
    )
