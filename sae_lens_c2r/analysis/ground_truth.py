"""How an SAE represents features that are known: recovery and absorption."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sae_lens_c2r.penalties.precision import unit_rows


@torch.no_grad()
def latents_of_features(
    W_dec: Float[Tensor, "d_sae d_in"], feature_vectors: Float[Tensor, "features d_in"]
) -> tuple[Int[Tensor, " features"], Float[Tensor, " features"]]:
    """For every true feature the latent whose decoder row is the nearest.

    Args:
        W_dec: The decoder.
        feature_vectors: The features' true directions.

    Returns:
        The latents, and their cosines with the features.
    """
    cosines, latents = (unit_rows(feature_vectors) @ unit_rows(W_dec).T).max(dim=1)
    return latents, cosines


@torch.no_grad()
def absorption_rates(
    latent_acts: Float[Tensor, "samples features"],
    feature_acts: Float[Tensor, "samples features"],
    edges: Sequence[tuple[int, int]],
) -> Float[Tensor, " edges"]:
    """How much more often a parent's latent is silent where one of its children is present.

    For every edge of the hierarchy: the share of samples with the child in which the parent's
    latent does not fire, less the share in which it does not fire on the parent alone,
    without any child; at least 0. An absorbing child takes the parent's place, so that its
    parent's latent has a hole there and nowhere else. Children imply their parents.

    Args:
        latent_acts: Activations of each feature's own latent, see `latents_of_features`.
        feature_acts: The true activations.
        edges: Pairs (parent, child) of features.

    Returns:
        A rate from 0 to 1 for each edge; NaN where the samples do not hold what it compares.
    """
    silent, present = latent_acts == 0, feature_acts != 0
    children: dict[int, list[int]] = {}
    for parent, child in edges:
        children.setdefault(parent, []).append(child)
    rates = []
    for parent, child in edges:
        alone = present[:, parent] & ~present[:, children[parent]].any(dim=1)
        missed = silent[alone, parent].double().mean()
        rate = silent[present[:, child], parent].double().mean() - missed
        rates.append(rate.clamp(min=0).item())
    return torch.tensor(rates)


@torch.no_grad()
def partial_absorption_rates(
    latent_acts: Float[Tensor, "samples features"],
    feature_acts: Float[Tensor, "samples features"],
    edges: Sequence[tuple[int, int]],
) -> Float[Tensor, " edges"]:
    r"""Which share of a parent its latent leaves to others where a child is present.

    .. math:: 1 - \frac{\mathbb E[z / f \mid \text{child}]}{\mathbb E[z / f \mid \text{alone}]}

    with z the activation of the parent's latent and f the parent's true one; at least 0.
    A latent that is silent there counts as much as one that is half as strong everywhere.

    Args:
        latent_acts: Activations of each feature's own latent, see `latents_of_features`.
        feature_acts: The true activations.
        edges: Pairs (parent, child) of features.

    Returns:
        A share from 0 to 1 for each edge; NaN where the samples do not hold what it compares,
        or the latent does not fire on the parent alone.
    """
    children: dict[int, list[int]] = {}
    for parent, child in edges:
        children.setdefault(parent, []).append(child)
    present = feature_acts != 0
    shares = []
    for parent, child in edges:
        gain = latent_acts[:, parent] / feature_acts[:, parent]  # NaN or infinite without it
        alone = present[:, parent] & ~present[:, children[parent]].any(dim=1)
        beside = present[:, parent] & present[:, child]
        gain_alone = gain[alone].double().mean()
        share = 1 - gain[beside].double().mean() / gain_alone
        shares.append(share.clamp(min=0).item() if gain_alone > 0 else float("nan"))
    return torch.tensor(shares)


@torch.no_grad()
def latents_per_feature(
    W_dec: Float[Tensor, "d_sae d_in"],
    feature_vectors: Float[Tensor, "features d_in"],
    *,
    above: float = 0.5,
) -> Int[Tensor, " features"]:
    """Over how many latents each true feature is split.

    Args:
        W_dec: The decoder.
        feature_vectors: The features' true directions.
        above: The cosine from which on a latent counts as one of the feature that it is the
            most similar to.

    Returns:
        A count for each feature, 0 for one that was not found.
    """
    cosines, features = (unit_rows(W_dec) @ unit_rows(feature_vectors).T).max(dim=1)
    return features[cosines > above].bincount(minlength=len(feature_vectors))
