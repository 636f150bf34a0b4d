"""Recovery and absorption against hand-made SAEs."""

import pytest
import torch

from sae_lens_c2r.analysis import (
    latents_of_features,
    latents_per_feature,
)
from sae_lens_c2r.analysis.recovery import AbsorptionSums


def test_latents_of_features_are_the_nearest_rows() -> None:
    features = torch.eye(3)
    W_dec = torch.tensor([[0.0, 5.0, 0.0], [0.1, 0.0, -2.0], [0.0, 0.1, 2.0], [9.0, 0.1, 0.0]])
    latents, cosines = latents_of_features(W_dec, features)
    assert latents.tolist() == [3, 0, 2]
    assert (cosines > 0.99).all()


# Features: a parent 0 with the children 1 and 2. Samples: the parent alone, twice; with one
# child each; with both; nothing.
FEATURES = torch.tensor(
    [[1, 0, 0], [1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [0, 0, 0]], dtype=torch.float32
)
EDGES = [(0, 1), (0, 2)]


def sums(acts: torch.Tensor, features: torch.Tensor = FEATURES) -> AbsorptionSums:
    """Of two batches."""
    found = AbsorptionSums(EDGES)
    found.add(acts[:2], features[:2])
    found.add(acts[2:], features[2:])
    return found


@pytest.mark.parametrize(
    ("parents_latent", "rates"),
    [
        ([1, 1, 1, 1, 1, 0], [0.0, 0.0]),  # fires wherever the parent is
        ([1, 1, 0, 1, 0, 0], [1.0, 0.5]),  # the first child takes its place
        ([-1, -1, 0, -1, 0, 0], [1.0, 0.5]),  # the same with activations of the other sign
        ([1, 1, 0, 0, 0, 0], [1.0, 1.0]),  # both do
        ([0, 0, 0, 0, 0, 0], [0.0, 0.0]),  # dead: it misses the parent alone as well
        ([1, 0, 0, 1, 0, 0], [0.5, 0.0]),  # silent half the time anyway
        ([0, 0, 1, 1, 1, 0], [0.0, 0.0]),  # fires with children only: no absorption
    ],
)
def test_absorption_is_silence_beyond_what_is_missed_otherwise(parents_latent, rates) -> None:
    acts = FEATURES.clone()
    acts[:, 0] = torch.tensor(parents_latent)
    assert sums(acts).full().tolist() == pytest.approx(rates)


def test_without_edges_there_are_no_rates() -> None:
    none = AbsorptionSums([])
    none.add(FEATURES, FEATURES)
    assert none.full().shape == none.partial().shape == (0,)


@pytest.mark.parametrize(
    ("parents_latent", "shares"),
    [
        ([1, 1, 1, 1, 1, 0], [0.0, 0.0]),  # as strong wherever the parent is
        ([2, 2, 1, 2, 1, 0], [0.5, 0.25]),  # half as strong beside the first child
        ([1, 1, 0, 1, 0, 0], [1.0, 0.5]),  # the first child takes its place
        ([1, 1, 3, 3, 3, 0], [0.0, 0.0]),  # stronger beside a child: no absorption
        ([0, 0, 1, 1, 1, 0], [float("nan")] * 2),  # not there on the parent alone
    ],
)
def test_partial_absorption_is_strength_that_is_missing(parents_latent, shares) -> None:
    acts = FEATURES.clone()
    acts[:, 0] = torch.tensor(parents_latent)
    found = sums(acts).partial().tolist()
    assert found == pytest.approx(shares, nan_ok=True)
    # In units of the true activations, whatever their scale.
    scaled = sums(3 * acts, 5 * FEATURES).partial().tolist()
    assert scaled == pytest.approx(shares, nan_ok=True)


def test_latents_per_feature_counts_those_that_are_like_it() -> None:
    W_dec = torch.tensor([[2.0, 0, 0], [1, 0.2, 0], [0, 1, 0], [0.5, 0.5, 0.5], [-1, 0, 0]])
    assert latents_per_feature(W_dec, torch.eye(3), above=0.6).tolist() == [2, 1, 0]
