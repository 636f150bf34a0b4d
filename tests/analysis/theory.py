"""The paper's analysis of one general feature that leaks into a second latent.

A feature fires on samples 1..m alone and on m+1..m+n together with a residual (Section 3).
With the leak alpha, the second latent takes the share alpha of the feature on the latter.

Eq. (6) of the paper prints alpha and 1 - alpha in the direction of that latent the other way
round: its text and its table of activations, which are followed here, have the latent
orthogonal to the feature at alpha = 0.
"""

import math

import torch
from torch import Tensor


def activation_table(feature: Tensor, residual: Tensor, alpha: float) -> Tensor:
    r"""Activations of both latents at a leak alpha: the table of the paper's Section 3.

    Where the residual fires, the latents have :math:`(1-\alpha) z_1` and
    :math:`\sqrt{(\alpha z_1)^2 + z_2^2}`; elsewhere :math:`z_1` and 0.
    """
    leaks = residual > 0
    first = torch.where(leaks, (1 - alpha) * feature, feature)
    second = torch.where(leaks, torch.hypot(alpha * feature, residual), 0.0)
    return torch.stack([first, second], dim=1)


def energies(feature: Tensor, residual: Tensor) -> tuple[float, float, float]:
    r"""The energies A, B and C of Eq. (22).

    .. math:: A = \sum_{i \le m} z_1^2, \quad B = \sum_{i > m} z_2^2, \quad
        C = \sum_{i > m} z_1^2
    """
    leaks = residual > 0
    squares = feature.double().square()
    alone, beside = squares[~leaks].sum().item(), squares[leaks].sum().item()
    return alone, residual.double().square().sum().item(), beside


def pair_loss(alpha: float, A: float, B: float, C: float) -> float:
    r"""The pair's norms over the batch, Eq. (12).

    .. math:: \sqrt{A + (1-\alpha)^2 C} + \sqrt{\alpha^2 C + B}
    """
    return math.sqrt(A + (1 - alpha) ** 2 * C) + math.sqrt(alpha**2 * C + B)


def pair_loss_derivative(alpha: float, A: float, B: float, C: float) -> float:
    r"""The derivative of `pair_loss` in alpha, Eq. (20): above 0, the penalty opposes the leak.

    .. math:: \frac{\alpha C}{\sqrt{\alpha^2 C + B}} -
        \frac{(1-\alpha) C}{\sqrt{A + (1-\alpha)^2 C}}
    """
    grows = alpha * C / math.sqrt(alpha**2 * C + B)
    return grows - (1 - alpha) * C / math.sqrt(A + (1 - alpha) ** 2 * C)
