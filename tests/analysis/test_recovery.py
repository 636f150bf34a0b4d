"""Recovery and absorption on features that are known, by SAEs that are made by hand."""

from math import nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sae_lens.synthetic import (
    HierarchyConfig,
    HierarchyNode,
    SyntheticModel,
    SyntheticModelConfig,
    ZipfianFiringProbabilityConfig,
)

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.analysis import latents_of_features, latents_per_feature
from sae_lens_c2r.analysis.recovery import (
    AbsorptionSums,
    feature_recovery,
    hierarchy_absorption,
    hierarchy_edges,
)
from tests.inspection.planted import planted_sae


def test_features_have_the_nearest_rows_and_count_those_that_are_like_them() -> None:
    W_dec = torch.tensor([[0.0, 5.0, 0.0], [0.1, 0.0, -2.0], [0.0, 0.1, 2.0], [9.0, 0.1, 0.0]])
    latents, cosines = latents_of_features(W_dec, torch.eye(3))
    assert latents.tolist() == [3, 0, 2]
    assert (cosines > 0.99).all()
    W_dec = torch.tensor([[2.0, 0, 0], [1, 0.2, 0], [0, 1, 0], [0.5, 0.5, 0.5], [-1, 0, 0]])
    assert latents_per_feature(W_dec, torch.eye(3), above=0.6).tolist() == [2, 1, 0]
    between = torch.tensor([[0.8, 0.6]])  # which counts for its nearest feature alone
    assert latents_per_feature(between, torch.eye(2), above=0.5).tolist() == [1, 0]


# Features: a parent 0 with the children 1 and 2. Samples: the parent alone, twice; with one
# child each; with both; nothing.
FEATURES = torch.tensor(
    [[1, 0, 0], [1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [0, 0, 0]], dtype=torch.float32
)
EDGES = [(0, 1), (0, 2)]


def sums(acts: torch.Tensor, features: torch.Tensor = FEATURES) -> AbsorptionSums:
    """Return the sums over two batches."""
    found = AbsorptionSums(EDGES)
    found.add(acts[:2], features[:2])
    found.add(acts[2:], features[2:])
    return found


@pytest.mark.parametrize(
    ("parents_latent", "silent", "weaker"),
    [
        ([1, 1, 1, 1, 1, 0], [0.0, 0.0], [0.0, 0.0]),  # as strong wherever the parent is
        ([1, 1, 0, 1, 0, 0], [1.0, 0.5], [1.0, 0.5]),  # the first child takes its place
        ([1, 1, 0, 0, 0, 0], [1.0, 1.0], [1.0, 1.0]),  # both do
        ([2, 2, 1, 2, 1, 0], [0.0, 0.0], [0.5, 0.25]),  # half as strong beside the first
        ([1, 0, 0, 1, 0, 0], [0.5, 0.0], [1.0, 0.0]),  # silent half the time anyway
        ([1, 1, 3, 3, 3, 0], [0.0, 0.0], [0.0, 0.0]),  # stronger beside a child
        ([0, 0, 1, 1, 1, 0], [0.0, 0.0], [nan, nan]),  # fires with children only
        ([0, 0, 0, 0, 0, 0], [0.0, 0.0], [nan, nan]),  # dead: it misses the parent alone too
    ],
)
def test_absorption_is_what_is_missing_beyond_what_is_missed_otherwise(
    parents_latent, silent, weaker
) -> None:
    acts = FEATURES.clone()
    acts[:, 0] = torch.tensor(parents_latent)
    # Of either sign, and in units of the true activations, whatever their scale.
    for found in (sums(acts), sums(-acts), sums(3 * acts, 5 * FEATURES)):
        assert found.full().tolist() == pytest.approx(silent)
    for found in (sums(acts), sums(3 * acts, 5 * FEATURES)):
        assert found.partial().tolist() == pytest.approx(weaker, nan_ok=True)


def test_without_edges_there_are_no_rates() -> None:
    none = AbsorptionSums([])
    none.add(FEATURES, FEATURES)
    assert none.full().shape == none.partial().shape == (0,)


N = 14  # two trees of a root with two children, each with two of its own


def planted() -> SyntheticModel:
    """Orthogonal features: what an SAE makes of them is what its weights say."""
    model = SyntheticModel(
        SyntheticModelConfig(
            num_features=N,
            hidden_dim=N,
            firing_probability=ZipfianFiringProbabilityConfig(max_prob=0.5, min_prob=0.2),
            hierarchy=HierarchyConfig(2, branching_factor=2, max_depth=2),
            bias=False,
            seed=0,
        )
    )
    model.feature_dict.feature_vectors.data = torch.eye(N)
    return model


def test_a_node_without_a_feature_has_its_children_s_edges() -> None:
    group = HierarchyNode(None, [HierarchyNode(1), HierarchyNode(2)], True)
    assert hierarchy_edges([HierarchyNode(0, [HierarchyNode(5), group])]) == [
        (0, 5),
        (0, 1),
        (0, 2),
    ]
    assert hierarchy_edges([group]) == []
    model = planted()
    model.hierarchy.roots[:] = [group]
    assert len(hierarchy_absorption(planted_sae(torch.eye(N)), model, samples=8).edges) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_an_sae_of_any_dtype_is_measured(dtype: torch.dtype) -> None:
    sae = planted_sae(torch.eye(N)).to(dtype)
    assert feature_recovery(sae, planted(), samples=64)["mcc"] == pytest.approx(1)
    assert hierarchy_absorption(sae, planted(), samples=64).found.all()


def test_sparse_activations_are_measured_as_dense_ones() -> None:
    sae, dense = planted_sae(torch.eye(N)), planted_sae(torch.eye(N))
    encode = dense.encode
    sae.encode = lambda inputs: encode(inputs).to_sparse()  # type: ignore[method-assign]
    rates = []
    for each in (sae, dense):
        torch.manual_seed(0)
        rates.append(hierarchy_absorption(each, planted(), samples=64).full)
    torch.testing.assert_close(*rates, equal_nan=True)


def test_autocast_and_mixed_precision_change_no_cosine() -> None:
    W_dec, features = torch.randn(20, 8), torch.randn(10, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = latents_of_features(W_dec, features)
    assert all(map(torch.equal, inside, latents_of_features(W_dec, features)))
    latents, _ = latents_of_features(W_dec.double(), features)
    assert torch.equal(latents, inside[0])


def test_edges_are_those_of_trees_of_any_depth_and_without_trees_there_are_none() -> None:
    model = planted()
    roots = model.hierarchy.roots
    edges = hierarchy_edges(roots)
    assert len(edges) == 12
    assert len({child for _, child in edges}) == 12
    assert {parent for parent, _ in edges} >= {root.feature_index for root in roots}
    with pytest.raises(ValueError, match="`samples` should be an integer of at least 1"):
        hierarchy_absorption(planted_sae(torch.eye(N)), model, samples=0)
    with pytest.raises(UserError, match=rf"`sae.cfg.d_in` should be {N}\. Found 2\."):
        hierarchy_absorption(planted_sae(torch.eye(2)), model)
    model.hierarchy = None
    with pytest.raises(UserError, match="`model` should have a hierarchy"):
        hierarchy_absorption(planted_sae(torch.eye(N)), model)


def test_only_what_leaves_a_parent_to_a_child_absorbs_and_a_parent_may_have_no_latent() -> None:
    model, sae = planted(), planted_sae(torch.eye(N))  # a latent for each feature
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
    sae.W_dec.data[parent] = 0.6 * torch.eye(N)[parent] + 0.8 * torch.eye(N)[child]
    found = hierarchy_absorption(sae, model, samples=500)
    of_parent = torch.tensor([edge[0] == parent for edge in found.edges])
    assert torch.equal(found.found, ~of_parent)


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
