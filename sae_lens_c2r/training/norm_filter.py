"""Tokens of massive norm, left out: `runner.max_activation_norm_multiple` of a release."""

import sys

import torch
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.releases.model import LanguageModel, ReleaseError, SyntheticModel

NORM_MULTIPLE = "max_activation_norm_multiple"


def checked_multiple(value: object, source: LanguageModel | SyntheticModel) -> float | None:
    """A multiple of the median norm, or `None`, with which no token is left out."""
    if value is None:
        return None
    key = f"`runner.{NORM_MULTIPLE}`"
    if not isinstance(source, LanguageModel):
        raise ReleaseError(f"{key} should go with a `language_model`. Found {value!r}.")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 1 <= value <= sys.float_info.max):  # type: ignore[operator]
        raise ReleaseError(f"{key} should be a finite number of at least 1. Found {value!r}.")
    return value  # type: ignore[return-value]


def within_norm(acts: Tensor, multiple: float | None) -> Tensor:
    """The activations of a batch whose norm is at most a multiple of the batch's median.

    Args:
        acts: Shape ``[tokens, d_in]``.
        multiple: The multiple; `None` for all activations.

    Returns:
        Shape ``[fewer tokens, d_in]``, in the same order.

    Raises:
        UserError: If there is NaN among them: no norm is within a median of that.
    """
    if multiple is None or len(acts) == 0:
        return acts
    norms = torch.linalg.vector_norm(acts, dim=-1, dtype=torch.float32)
    kept = acts[norms <= multiple * norms.median()]
    if len(kept) == 0:
        raise UserError(
            "The model should give activations that are numbers. Found NaN in a batch of "
            f"{len(acts):,} tokens."
        )
    return kept
