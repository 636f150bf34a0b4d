"""Thresholds of SAEs that jump: one for all latents, as BatchTopK learns, or one for each."""

from typing import Any

import torch
from sae_lens import SAE
from sae_lens.saes import JumpReLUSAE
from torch import Tensor

from sae_lens_c2r._support.errors import UserError

_ALIKE = 1e-5  # relative: what saving in float32, and norms that are 1 but for rounding, leave

Weights = dict[str, Tensor]


def thresholds_of(sae: SAE[Any]) -> Tensor:
    """What each latent has to exceed to fire, in float64: 0 where a ReLU is all there is."""
    if not isinstance(sae, JumpReLUSAE):
        return torch.zeros(sae.cfg.d_sae, dtype=torch.float64, device=sae.W_dec.device)
    return sae.threshold.detach().double().clamp(min=0)  # below that, its ReLU decides


def may_be_rescaled(sae: SAE[Any]) -> bool:
    """Whether one threshold serves all latents in units of unit decoder rows."""
    norms = sae.W_dec.detach().double().norm(dim=-1)
    return bool((norms > 0).all()) and _are_alike(thresholds_of(sae) * norms)


def with_one_threshold(weights: Weights, thresholds: Tensor, *, rescaled: bool) -> Weights:
    """The weights of a BatchTopK SAE, whose latents share `topk_threshold`.

    Args:
        weights: `W_enc`, `b_enc`, `W_dec` and `b_dec`, in float64.
        thresholds: What each latent has to exceed, shape ``[d_sae]``.
        rescaled: Whether activations are taken in units of unit decoder rows, as
            `rescale_acts_by_decoder_norm` has it. If not, a latent may be scaled, and its
            decoder row by the inverse, until the threshold of all is its own.

    Returns:
        The weights of the same function, with `topk_threshold`.

    Raises:
        UserError: If there is no such function.
    """
    if rescaled:
        thresholds = thresholds * weights["W_dec"].norm(dim=-1)
    if _are_alike(thresholds):
        return {**weights, "topk_threshold": thresholds.median()}
    between = f"thresholds from {thresholds.min():.3g} to {thresholds.max():.3g}"
    if rescaled:
        raise UserError(
            "`rescale_acts_by_decoder_norm` should be false for an SAE whose latents have "
            f"thresholds of their own, which it makes unequal again. Found {between}."
        )
    if not (thresholds > 0).all():
        raise UserError(
            "`architecture` should be `jumprelu` or `jumprelu_c2r` where some latents have "
            f"the threshold 0 and others have not. Found {between}."
        )
    # The geometric mean: on average, latents and their decoder rows stay as large as they are.
    shared = thresholds.log().mean().exp()
    factors = shared / thresholds
    return {
        **weights,
        "W_enc": weights["W_enc"] * factors,
        "b_enc": weights["b_enc"] * factors,
        "W_dec": weights["W_dec"] / factors[:, None],
        "topk_threshold": shared,
    }


def _are_alike(thresholds: Tensor) -> bool:
    return bool(thresholds.max() - thresholds.min() <= _ALIKE * thresholds.max())
