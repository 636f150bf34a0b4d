"""The paper's definitions as plain loops over scalars, to compare the library with."""

import math

import torch
from torch import Tensor


def cosine(left: Tensor, right: Tensor) -> Tensor:
    norms = _norm(left) * _norm(right)
    dot = sum((a * b for a, b in zip(left, right, strict=True)), left.new_zeros(()))
    return dot / norms if norms > 0 else dot * 0


def nearest(W_dec: Tensor, chunks: list[list[int]]) -> list[int]:
    """Eq. (15), within chunks as in Eq. (25); a latent alone in its chunk has itself."""
    rows = W_dec.detach()
    neighbors = list(range(len(W_dec)))
    for chunk in chunks:
        for i in chunk:
            best = -math.inf
            for j in chunk:
                if j != i and cosine(rows[i], rows[j]).item() > best:
                    neighbors[i], best = j, cosine(rows[i], rows[j]).item()
    return neighbors


def sum_over_pairs(
    feature_acts: Tensor,
    W_dec: Tensor,
    pairs: list[tuple[int, int]],
    exponent: float,
    *,
    gated: bool = True,
) -> Tensor:
    """Eq. (16), term by term, gated or not; a latent with itself is no pair."""
    total = feature_acts.new_zeros(())
    for i, j in pairs:
        norms = _norm(feature_acts[:, i]) + _norm(feature_acts[:, j])
        if i == j or norms == 0:
            continue
        rho = torch.clamp(cosine(W_dec[i], W_dec[j]), min=0) if gated else 1.0
        total = total + rho * rho * norms**exponent
    return total


def _norm(vector: Tensor) -> Tensor:
    squares = sum((x * x for x in vector), vector.new_zeros(()))
    return torch.sqrt(squares) if squares > 0 else squares
