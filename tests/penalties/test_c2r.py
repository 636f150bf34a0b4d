"""The penalty against its definition; its laws are in `tests/test_laws.py`."""

from collections.abc import Iterator
from functools import partial
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sae_lens_c2r import c2r_penalty, nearest_neighbors, orthogonality_penalty
from sae_lens_c2r.penalties import batches, cosines, neighbors
from sae_lens_c2r.penalties.c2r import squared_gate
from sae_lens_c2r.penalties.cosines import VALUES_PER_TILE, pair_cosines
from tests import properties, reference
from tests.penalties.test_neighbors import chunks_drawn
from tests.strategies import Case, cases, chunk_sizes, exponents, seeds


@pytest.fixture(scope="module", params=product(["cpu", "accelerator"], [None, 8]))
def tile(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both sizes of the world: tests have small decoders, and users have large ones.

    And both kinds of device: what an accelerator does, a CPU can do.
    """
    kind, values = request.param
    with pytest.MonkeyPatch.context() as patched:
        if kind == "accelerator":
            for module in (batches, cosines, neighbors):
                patched.setattr(module, "CPU", "none of these")
        if values is not None:
            patched.setitem(VALUES_PER_TILE, kind, values)
        yield


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("gate", ["relu", "none"])
@pytest.mark.parametrize("pairs", ["nearest", "all"])
@given(case=cases(max_d_sae=6), chunk_size=chunk_sizes, exponent=exponents, seed=seeds)
def test_equals_the_definition_in_value_and_gradient(
    pairs: str, gate: str, case: Case, chunk_size: int | None, exponent: float, seed: int
) -> None:
    options = {"chunk_size": chunk_size, "generator": torch.Generator().manual_seed(seed)}
    penalty = partial(c2r_penalty, pairs=pairs, gate=gate, exponent=exponent, **options)
    found = properties.gradients(penalty, case)
    options["generator"] = torch.Generator().manual_seed(seed)
    terms = list(enumerate(nearest_neighbors(case.W_dec, **options).tolist()))
    if pairs == "all":
        chunks = chunks_drawn(case.d_sae, chunk_size, seed)
        terms = [pair for chunk in chunks for pair in product(chunk, chunk)]
    acts = case.feature_acts.clone().requires_grad_()
    W_dec = case.W_dec.clone().requires_grad_()
    total = reference.sum_over_pairs(acts, W_dec, terms, exponent, gated=gate == "relu")
    expected = total / case.d_sae
    largest_pair = (2 * case.feature_acts.norm(dim=0).max().item()) ** exponent
    assert_agrees(found[0], expected.detach(), largest_pair * case.d_sae)
    if expected > 0:
        in_acts, in_W_dec = properties.derivatives(expected, [acts, W_dec])
        lengths = [length for length in case.W_dec.norm(dim=1).tolist() if length > 0]
        assert_agrees(found[1], in_acts, case.d_sae)
        shortest = min(lengths, default=1.0)
        assert_agrees(found[2], in_W_dec, case.d_sae * largest_pair / shortest)


def assert_agrees(found: torch.Tensor, expected: torch.Tensor, size_of_terms: float) -> None:
    """To 1e-12, relative to the largest entry or to the terms that may cancel in it."""
    scale = max(1.0, size_of_terms, expected.abs().max().item())
    torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=1e-12)


@given(case=cases(), chunk_size=chunk_sizes, seed=seeds)
def test_orthogonality_penalty_is_c2r_with_pairs_of_norm_one(
    case: Case, chunk_size: int | None, seed: int
) -> None:
    halves = torch.full((1, case.d_sae), 0.5, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    neighbors = nearest_neighbors(case.W_dec, chunk_size=chunk_size, generator=generator)
    options = {"chunk_size": chunk_size, "neighbors": neighbors}
    found = orthogonality_penalty(case.W_dec, **options)
    torch.testing.assert_close(found, c2r_penalty(halves, case.W_dec, **options))
    assert 0 <= found <= 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@given(case=cases())
def test_low_precision_inputs_give_finite_values_near_the_exact_one(
    dtype: torch.dtype, case: Case
) -> None:
    low = Case(case.feature_acts.to(dtype), case.W_dec.to(dtype))
    properties.is_finite_and_not_negative(c2r_penalty, low)
    neighbors = nearest_neighbors(low.W_dec)
    found = c2r_penalty(low.feature_acts, low.W_dec, neighbors=neighbors)
    assert found.dtype == torch.float32
    exact = c2r_penalty(low.feature_acts.double(), low.W_dec.double(), neighbors=neighbors)
    torch.testing.assert_close(found.double(), exact, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("pairs", ["nearest", "all"])
def test_gradients_stay_within_the_range_of_half_precision(pairs: str) -> None:
    """Rows of length 1e-4 have gradients that float16 cannot hold."""
    W_dec = torch.tensor([[1e-4, 0], [1e-4, 1e-4]], dtype=torch.float16)
    acts = torch.full((2048, 2), 10.0, dtype=torch.float16)
    penalty = partial(c2r_penalty, pairs=pairs)
    properties.is_finite_and_not_negative(penalty, Case(acts, W_dec))


@pytest.mark.parametrize("pairs", ["nearest", "all"])
@pytest.mark.parametrize(
    ("dtype", "decades", "atol"),
    [(torch.bfloat16, 18, 1e-4), (torch.float32, 18, 1e-4), (torch.float64, 150, 1e-11)],
)
@given(case=cases(), powers=st.lists(st.floats(-1, 1), min_size=7, max_size=7))
def test_lengths_of_decoder_rows_may_be_huge_or_tiny(
    dtype: torch.dtype, decades: int, atol: float, pairs: str, case: Case, powers: list[float]
) -> None:
    """To the ends of the range that the docstring states, and each row of its own length."""
    lengths = 10.0 ** (decades * torch.tensor(powers[: case.d_sae], dtype=torch.float64))
    unit = torch.nn.functional.normalize(case.W_dec)
    W_dec, acts = (unit * lengths[:, None]).to(dtype), case.feature_acts.to(dtype) / 1e3
    unit = W_dec.double() / lengths[:, None]  # as the dtype rounds it
    penalty = partial(c2r_penalty, pairs=pairs)
    if pairs == "nearest":
        found = nearest_neighbors(W_dec)
        both = found, nearest_neighbors(unit)
        reached, highest = (pair_cosines(unit, each) for each in both)
        torch.testing.assert_close(reached, highest, rtol=0, atol=atol)
        penalty = partial(penalty, neighbors=found)
    value, in_acts, in_W_dec = properties.gradients(penalty, Case(acts, W_dec))
    expected = properties.gradients(penalty, Case(acts.double(), unit))
    in_unit = in_W_dec.double() * lengths[:, None]
    rtol = max(atol, torch.finfo(dtype).eps)
    for found, right in zip((value, in_acts, in_unit), expected, strict=True):
        torch.testing.assert_close(found.double(), right, rtol=rtol, atol=atol)


def test_rows_too_short_to_be_squared_count_as_zero_rows() -> None:
    acts, W_dec = torch.rand(4, 6), torch.rand(6, 3) * 1e-25
    value, *grads = properties.gradients(c2r_penalty, Case(acts, W_dec))
    assert value == 0
    assert all((grad == 0).all() for grad in grads)


@pytest.mark.parametrize("magnitude", [1e-15, 1e15])
@given(case=cases())
def test_huge_and_tiny_magnitudes_stay_finite(magnitude: float, case: Case) -> None:
    scaled = Case((magnitude * case.feature_acts).float(), (magnitude * case.W_dec).float())
    properties.is_finite_and_not_negative(c2r_penalty, scaled)


@given(cosine=st.floats(-1, 1), more=st.floats(0, 1))
def test_gate_opens_at_a_right_angle_and_grows_from_there(cosine: float, more: float) -> None:
    cosine = torch.tensor(cosine, dtype=torch.float64)
    gate = squared_gate(cosine, "relu")
    assert 0 <= gate <= squared_gate(cosine, "none") == 1
    assert (gate > 0) <= (cosine > 0)
    assert squared_gate(cosine + more, "relu") >= gate


@given(cosine=st.floats(0, 1e-6))
def test_gradient_of_the_gate_is_continuous_where_it_opens(cosine: float) -> None:
    near = torch.tensor(cosine, dtype=torch.float64, requires_grad=True)
    [gradient] = torch.autograd.grad(squared_gate(near, "relu"), near)
    assert 0 <= gradient <= 2 * cosine + 1e-15


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("pairs", ["nearest", "all"])
@pytest.mark.parametrize("exponent", [1.0, 1.7])
def test_gradients_of_gradients_are_right(exponent: float, pairs: str) -> None:
    acts = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    W_dec = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    penalty = partial(c2r_penalty, exponent=exponent, pairs=pairs)
    assert torch.autograd.gradgradcheck(penalty, (acts, W_dec))


@pytest.mark.parametrize("pairs", ["nearest", "all"])
def test_autocast_changes_nothing(pairs: str, device: str) -> None:
    acts, W_dec = torch.randn(16, 64, device=device), torch.randn(64, 8, device=device)
    outside = c2r_penalty(acts, W_dec, pairs=pairs)
    with torch.autocast(device, dtype=torch.bfloat16):
        inside = c2r_penalty(acts, W_dec, pairs=pairs)
    assert torch.equal(inside, outside)


@pytest.mark.parametrize("pairs", ["nearest", "all"])
@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_a_nan_stays_one(pairs: str, exponent: float) -> None:
    acts = torch.ones(4, 6)
    acts[0, 0] = torch.nan
    assert c2r_penalty(acts, torch.ones(6, 3), pairs=pairs, exponent=exponent).isnan()


@pytest.mark.parametrize("changed", ["acts", "W_dec", "neighbors"])
def test_changes_between_the_passes_are_noticed(changed: str) -> None:
    """As by autograd itself: the backward pass would be that of other values."""
    acts, W_dec = torch.rand(4, 8, requires_grad=True), torch.rand(8, 3, requires_grad=True)
    given = {"acts": acts * 1, "W_dec": W_dec * 1, "neighbors": nearest_neighbors(W_dec)}
    penalty = c2r_penalty(given["acts"], given["W_dec"], neighbors=given["neighbors"])
    given[changed].add_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        penalty.backward()


@pytest.mark.usefixtures("unchecked_types")  # beartype cannot be compiled
def test_other_ways_to_differentiate_and_to_compile() -> None:
    acts, W_dec = torch.rand(4, 40), torch.randn(40, 3, requires_grad=True)
    [expected] = torch.autograd.grad(c2r_penalty(acts, W_dec), W_dec)
    found = torch.func.grad(lambda W_dec: c2r_penalty(acts, W_dec))(W_dec.detach())
    torch.testing.assert_close(found, expected)
    compiled = torch.compile(c2r_penalty, backend="aot_eager")
    [found] = torch.autograd.grad(compiled(acts, W_dec), W_dec)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("pairs", "decoders"), [("nearest", 3), ("all", 4)])
@pytest.mark.parametrize("chunk_size", [64, None])
def test_keeps_a_few_decoders_for_backward(
    pairs: str, decoders: int, chunk_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 32 tiles to a dictionary: neither their cosines nor the rows gathered for them."""
    monkeypatch.setitem(VALUES_PER_TILE, "cpu", 16 * (chunk_size or 512))
    kept: dict[int, int] = {}  # the size of each storage

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    acts = torch.randn(4, 512, requires_grad=True)
    W_dec = torch.randn(512, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        penalty = c2r_penalty(acts, W_dec, pairs=pairs, chunk_size=chunk_size)
        assert penalty.requires_grad
    assert sum(kept.values()) < decoders * (512 * 8 * 4)


@pytest.mark.parametrize("pairs", ["nearest", "all"])
@given(cosine=st.floats(-1, 0), others=st.integers(1, 4))
def test_decoders_at_right_angles_or_beyond_are_left_alone(
    pairs: str, cosine: float, others: int
) -> None:
    """Two latents, among others orthogonal to both."""
    W_dec = torch.eye(2 + others, dtype=torch.float64)
    W_dec[1, :2] = torch.tensor([cosine, (1 - cosine**2) ** 0.5], dtype=torch.float64)
    acts = torch.ones(3, 2 + others, dtype=torch.float64)
    penalty = partial(c2r_penalty, pairs=pairs)
    value, *gradients = properties.gradients(penalty, Case(acts, W_dec))
    assert value == 0
    assert all((gradient == 0).all() for gradient in gradients)
    assert orthogonality_penalty(W_dec) == 0
