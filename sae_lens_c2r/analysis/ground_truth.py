"""How an SAE represents features that are known: which latents are theirs."""

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
