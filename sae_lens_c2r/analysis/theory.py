"""The paper's analysis of one general feature that leaks into a second latent.

A feature fires on samples 1..m alone and on m+1..m+n together with a residual (Section 3).
With the leak alpha, the second latent takes the share alpha of the feature on the latter.

Eq. (6) of the paper prints alpha and 1 - alpha in the direction of that latent the other way
round: its text and its table of activations, which are followed here, have the latent
orthogonal to the feature at alpha = 0.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from sae_lens_c2r._support.checks import check_non_negative, check_positive, message


def activation_table(
    feature: Float[Tensor, " samples"], residual: Float[Tensor, " samples"], alpha: float
) -> Float[Tensor, "samples 2"]:
    r"""Activations of both latents at a leak alpha: the table of the paper's Section 3.

    Where the residual fires, the latents have :math:`(1-\alpha) z_1` and
    :math:`\sqrt{(\alpha z_1)^2 + z_2^2}`; elsewhere :math:`z_1` and 0.

    Args:
        feature: Activations of the feature, z_1 >= 0.
        residual: Activations of the residual, z_2 >= 0.
        alpha: The leak, from 0 (none) to 1 (full splitting or absorption).

    Returns:
        One row a sample.

    Raises:
        TypeError: If `alpha` is not a number.
        ValueError: If `alpha` is not from 0 to 1.
    """
    _check_alpha(alpha)
    leaks = residual > 0
    first = torch.where(leaks, (1 - alpha) * feature, feature)
    second = torch.where(leaks, torch.hypot(alpha * feature, residual), 0.0)
    return torch.stack([first, second], dim=1)


def energies(
    feature: Float[Tensor, " samples"], residual: Float[Tensor, " samples"]
) -> tuple[float, float, float]:
    r"""The energies A, B and C of Eq. (22).

    .. math:: A = \sum_{i \le m} z_1^2, \quad B = \sum_{i > m} z_2^2, \quad
        C = \sum_{i > m} z_1^2

    Args:
        feature: Activations of the feature, z_1.
        residual: Activations of the residual, z_2.

    Returns:
        A: the feature's energy alone; B: the residual's; C: the feature's beside the residual.
    """
    leaks = residual > 0
    squares = feature.double().square()
    alone, beside = squares[~leaks].sum().item(), squares[leaks].sum().item()
    return alone, residual.double().square().sum().item(), beside


def pair_loss(alpha: float, A: float, B: float, C: float) -> float:
    r"""The pair's norms over the batch, Eq. (12).

    .. math:: \sqrt{A + (1-\alpha)^2 C} + \sqrt{\alpha^2 C + B}

    Args:
        alpha: The leak, from 0 to 1.
        A: Energy of the feature alone.
        B: Energy of the residual.
        C: Energy of the feature beside the residual.

    Returns:
        The sum of the two norms.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If `alpha` is not from 0 to 1, or an energy is negative.
    """
    _check_alpha(alpha)
    _check_energies(A, B, C)
    return math.sqrt(A + (1 - alpha) ** 2 * C) + math.sqrt(alpha**2 * C + B)


def pair_loss_derivative(alpha: float, A: float, B: float, C: float) -> float:
    r"""The derivative of `pair_loss` in alpha, Eq. (20).

    .. math:: \frac{\alpha C}{\sqrt{\alpha^2 C + B}} - \frac{(1-\alpha) C}{\sqrt{A + (1-\alpha)^2 C}}

    Args:
        alpha: The leak, from 0 to 1.
        A: Energy of the feature alone, above 0.
        B: Energy of the residual, above 0.
        C: Energy of the feature beside the residual.

    Returns:
        The slope: above 0, the penalty works against the leak.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If `alpha` is not from 0 to 1, A or B not above 0, or C negative.
    """  # noqa: E501
    _check_alpha(alpha)
    _check_energies(A, B, C)
    check_positive("A", A)
    check_positive("B", B)
    grows = alpha * C / math.sqrt(alpha**2 * C + B)
    return grows - (1 - alpha) * C / math.sqrt(A + (1 - alpha) ** 2 * C)


def consolidation_threshold(A: float, B: float) -> float:
    r"""The leak from which on `pair_loss` grows with alpha, Eq. (13).

    .. math:: \alpha \ge \frac 1 {\sqrt{A / B} + 1}

    The penalty works against leaks above it. It nears 0 as the feature alone carries more
    energy than the residual.

    Args:
        A: Energy of the feature alone.
        B: Energy of the residual, above 0.

    Returns:
        The threshold, from 0 to 1.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If an energy is negative, or B is 0.
    """
    _check_energies(A, B, 0.0)
    check_positive("B", B)
    return 1 / (math.sqrt(A / B) + 1)


def _check_alpha(alpha: float) -> None:
    check_non_negative("alpha", alpha)
    if alpha > 1:
        raise ValueError(message("alpha", "be from 0 to 1", alpha))


def _check_energies(A: float, B: float, C: float) -> None:
    for name, energy in (("A", A), ("B", B), ("C", C)):
        check_non_negative(name, energy)
