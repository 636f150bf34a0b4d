"""Absorption on features in trees, by SAEs that are made by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sae_lens import StandardSAE, StandardSAEConfig
from sae_lens.synthetic import (
    HierarchyConfig,
    SyntheticModel,
    SyntheticModelConfig,
    ZipfianFiringProbabilityConfig,
)

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.analysis.recovery import (
    AbsorptionSums,
    hierarchy_absorption,
    hierarchy_edges,
)

N = 14  # two trees of a root with two children, each with two of its own


def planted(*, hierarchy: bool = True) -> SyntheticModel:
    """Orthogonal features: what an SAE makes of them is what its weights say."""
    model = SyntheticModel(
        SyntheticModelConfig(
            num_features=N,
            hidden_dim=N,
            firing_probability=ZipfianFiringProbabilityConfig(max_prob=0.5, min_prob=0.2),
            hierarchy=HierarchyConfig(2, branching_factor=2, max_depth=2)
            if hierarchy
            else None,
            bias=False,
            seed=0,
        )
    )
    model.feature_dict.feature_vectors.data = torch.eye(N)
    return model


def sae_of_the_features() -> StandardSAE:
    """A latent for each feature, which encodes it exactly."""
    sae = StandardSAE(StandardSAEConfig(d_in=N, d_sae=N, apply_b_dec_to_input=False))
    for weights in (sae.W_enc, sae.W_dec):
        weights.data = torch.eye(N)
    return sae


def test_edges_are_those_of_trees_of_any_depth() -> None:
    hierarchy = planted().hierarchy
    assert hierarchy is not None
    edges = hierarchy_edges(hierarchy.roots)
    assert len(edges) == 12
    assert len({child for _, child in edges}) == 12
    assert {parent for parent, _ in edges} >= {root.feature_index for root in hierarchy.roots}


def test_only_the_latent_that_leaves_its_parent_to_a_child_absorbs() -> None:
    model, sae = planted(), sae_of_the_features()
    nothing = hierarchy_absorption(sae, model, samples=3000, batch_size=1000)
    assert (nothing.full == 0).all()
    assert (nothing.partial == 0).all()
    assert nothing.found.all()
    parent, child = nothing.edges[0]
    sae.W_enc.data[child, parent] = -10.0  # the parent's latent is silent where the child is
    found = hierarchy_absorption(sae, model, samples=3000, batch_size=1000)
    for name in ("full", "partial"):
        rates = dict(zip(found.edges, getattr(found, name).tolist(), strict=True))
        assert rates[parent, child] == 1
        # A descendant implies the child; of the parent's others none does.
        others = [edge for edge in found.edges if edge[0] != parent]
        assert all(rates[edge] == 0 for edge in others)


def test_a_parent_that_no_latent_is_nearest_to_is_not_found() -> None:
    model, sae = planted(), sae_of_the_features()
    parent, child = hierarchy_edges(model.hierarchy.roots)[0]
    sae.W_dec.data[parent] = 0.6 * torch.eye(N)[parent] + 0.8 * torch.eye(N)[child]
    found = hierarchy_absorption(sae, model, samples=500)
    of_parent = torch.tensor([edge[0] == parent for edge in found.edges])
    assert torch.equal(found.found, ~of_parent)


def test_features_without_a_hierarchy_are_refused() -> None:
    with pytest.raises(UserError, match="`model` should have a hierarchy"):
        hierarchy_absorption(sae_of_the_features(), planted(hierarchy=False))


@given(cuts=st.lists(st.integers(0, 60), max_size=3), seed=st.integers(0, 1000))
def test_batches_are_summed(cuts: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    acts, features = torch.rand(2, 60, 4, generator=generator).sub(0.5).clamp(min=0)
    whole, parts = (AbsorptionSums([(0, 1), (0, 2), (1, 3)]) for _ in range(2))
    whole.add(acts, features)
    for batch in torch.arange(60).tensor_split(sorted(cuts)):
        parts.add(acts[batch], features[batch])
    for rates in ("full", "partial"):
        found, expected = getattr(parts, rates)(), getattr(whole, rates)()
        torch.testing.assert_close(found, expected, equal_nan=True)
