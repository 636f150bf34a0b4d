"""The laws of the penalties, and that each architecture's penalty is one of these functions."""

from collections.abc import Collection
from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from sae_lens_c2r import c2r_penalty, nearest_neighbors, orthogonality_penalty
from sae_lens_c2r.penalties import step_generator
from sae_lens_c2r.penalties.batches import batch_norms
from sae_lens_c2r.penalties.cosines import pair_cosines, unit_rows
from tests.architectures.training import make_sae, penalties_of, step_input
from tests.properties import Penalty, gradients, is_finite_and_not_negative
from tests.strategies import (
    ARCHITECTURES,
    DENSE_LAYOUTS,
    LAYOUTS_OF_ACTS,
    VALUES,
    Case,
    cases,
    chunk_sizes,
    exponents,
)

# A dictionary of one latent has one level.
pytestmark = pytest.mark.filterwarnings(
    "ignore:WARNING. You have only set one matryoshka level"
)


def in_chunks(acts: Tensor, W_dec: Tensor, **options: object) -> Tensor:
    """The function, with the same chunks at every call."""
    return c2r_penalty(
        acts, W_dec, **{**options, "chunk_size": 3, "generator": step_generator(0, 0)}
    )


def with_other_neighbors(acts: Tensor, W_dec: Tensor, **options: object) -> Tensor:
    """The function, with neighbours that were the nearest of another decoder."""
    before = torch.randn(W_dec.shape, generator=torch.Generator().manual_seed(0))
    return c2r_penalty(acts, W_dec, **{**options, "neighbors": nearest_neighbors(before)})


def in_bfloat16(acts: Tensor, W_dec: Tensor, **options: object) -> Tensor:
    """The function, of inputs in low precision."""
    return c2r_penalty(acts.bfloat16(), W_dec.bfloat16(), **options).double()


def orthogonality(_acts: Tensor, W_dec: Tensor, **options: object) -> Tensor:
    """The penalty of OrtSAE, which activations have no part in."""
    return orthogonality_penalty(W_dec, chunk_size=options.get("chunk_size"))


FUNCTIONS: dict[str, Penalty] = {
    "the function": c2r_penalty,
    "the function in chunks": in_chunks,
    "the function over all pairs": partial(c2r_penalty, pairs="all"),
    "the function with other neighbors": with_other_neighbors,
    "the function in bfloat16": in_bfloat16,
    "orthogonality": orthogonality,
}


def every(*, but: Collection[str] = ()) -> pytest.MarkDecorator:
    """All functions for which a law holds."""
    held = [name for name in FUNCTIONS if name not in but]
    return pytest.mark.parametrize("penalty", [FUNCTIONS[name] for name in held], ids=held)


def numbers(n: int, values: st.SearchStrategy[float]) -> st.SearchStrategy[Tensor]:
    """Vectors of so many of them."""
    drawn = st.lists(values, min_size=n, max_size=n)
    return drawn.map(lambda vector: torch.tensor(vector, dtype=torch.float64))


ROUNDED = {"the function in bfloat16"}
LABELLED = {"the function in chunks", "the function with other neighbors"}


def assume_no_ties(W_dec: Tensor) -> None:
    """Leave out decoders in which two latents are equally near to a third.

    In whatever chunk they meet, either may be its neighbour. Of gates that are closed it does
    not matter whose.
    """
    unit = unit_rows(W_dec)
    cosines = (unit @ unit.T).fill_diagonal_(-torch.inf).sort(dim=1, descending=True).values
    for nearer, farther in pairwise(cosines.T):
        assume(bool(((nearer - farther > 1e-9) | (nearer <= 0)).all()))


@every()
@given(case=cases(), exponent=exponents, chunk_size=chunk_sizes)
def test_is_finite_and_not_negative(
    penalty: Penalty, case: Case, exponent: float, chunk_size: int | None
) -> None:
    own = partial(penalty, exponent=exponent, chunk_size=chunk_size)
    is_finite_and_not_negative(own, case)


@every()
@given(case=cases(), data=st.data())
def test_is_zero_for_a_decoder_without_acute_angles(
    penalty: Penalty, case: Case, data: st.DataObject
) -> None:
    """So are its gradients. Rows are coordinate axes of any length and order, some 0."""
    d_sae = case.d_sae
    axes = torch.eye(2 * d_sae, dtype=torch.float64).repeat_interleave(2, dim=0)
    axes[1::2] *= -1
    rows = torch.tensor(data.draw(st.permutations(range(len(axes)))))[:d_sae]
    lengths = data.draw(numbers(d_sae, st.just(0.0) | st.floats(1e-6, 10)))
    case = Case(case.feature_acts, axes[rows] * lengths[:, None])
    neighbors = nearest_neighbors(case.W_dec, chunk_size=None)
    assert (pair_cosines(case.W_dec, neighbors) <= 0).all(), "the case is not obtuse"
    value, *grads = gradients(penalty, case)
    assert value == 0
    assert all((grad == 0).all() for grad in grads)


@every(but={"orthogonality"})
@given(case=cases())
def test_gate_is_between_0_and_1(penalty: Penalty, case: Case) -> None:
    """Two latents of norm 1 alone pay twice their gate."""
    for pair in case.W_dec.split(2):
        gate = penalty(torch.eye(len(pair), dtype=pair.dtype), pair) / 2
        assert 0 <= gate <= 1 + 1e-12


@every(but=ROUNDED | {"orthogonality"})
@given(case=cases(), scale=st.floats(1e-3, 1e3), exponent=exponents)
def test_is_homogeneous(penalty: Penalty, case: Case, scale: float, exponent: float) -> None:
    """Activations s times as large make the penalty s ** exponent times as large."""
    scaled = penalty(scale * case.feature_acts, case.W_dec, exponent=exponent)
    unscaled = penalty(case.feature_acts, case.W_dec, exponent=exponent)
    expected = scale**exponent * unscaled
    torch.testing.assert_close(scaled, expected, rtol=1e-11, atol=1e-12)


@every(but={"orthogonality"})
@given(case=cases(), data=st.data())
def test_ignores_signs_of_acts(penalty: Penalty, case: Case, data: st.DataObject) -> None:
    signs = data.draw(numbers(case.d_sae, st.sampled_from([-1.0, 1.0])))
    flipped = penalty(case.feature_acts * signs, case.W_dec)
    assert flipped == penalty(case.feature_acts, case.W_dec)


@every(but=ROUNDED | {"orthogonality"})
@given(case=cases(), data=st.data())
def test_ignores_order_of_samples(penalty: Penalty, case: Case, data: st.DataObject) -> None:
    order = torch.tensor(data.draw(st.permutations(range(len(case.feature_acts)))))
    permuted = penalty(case.feature_acts[order], case.W_dec)
    expected = penalty(case.feature_acts, case.W_dec)
    torch.testing.assert_close(permuted, expected, rtol=1e-12, atol=1e-12)


@every(but=ROUNDED | LABELLED)
@given(case=cases(), data=st.data())
def test_ignores_order_of_latents(penalty: Penalty, case: Case, data: st.DataObject) -> None:
    assume_no_ties(case.W_dec)
    order = torch.tensor(data.draw(st.permutations(range(case.d_sae))))
    permuted = penalty(case.feature_acts[:, order], case.W_dec[order])
    expected = penalty(case.feature_acts, case.W_dec)
    torch.testing.assert_close(permuted, expected, rtol=1e-9, atol=1e-9)


@every(but=ROUNDED)
@given(case=cases(), data=st.data())
def test_ignores_lengths_of_rows(penalty: Penalty, case: Case, data: st.DataObject) -> None:
    """The activations are in units of unit-norm rows already."""
    assume_no_ties(case.W_dec)
    lengths = data.draw(numbers(case.d_sae, st.floats(1e-2, 1e2)))
    scaled = penalty(case.feature_acts, lengths[:, None] * case.W_dec)
    expected = penalty(case.feature_acts, case.W_dec)
    torch.testing.assert_close(scaled, expected, rtol=1e-12, atol=1e-9)


@every(but=ROUNDED)
@given(
    case=cases(),
    acts=st.sampled_from(sorted(LAYOUTS_OF_ACTS)),
    decoder=st.sampled_from(sorted(DENSE_LAYOUTS)),
)
def test_ignores_layout(penalty: Penalty, case: Case, acts: str, decoder: str) -> None:
    """The same values elsewhere in memory: the same penalty and gradients."""
    assume_no_ties(case.W_dec)
    of_acts, of_decoder = LAYOUTS_OF_ACTS[acts], DENSE_LAYOUTS[decoder]
    relaid = gradients(lambda acts, W_dec: penalty(of_acts(acts), of_decoder(W_dec)), case)
    for found, right in zip(relaid, gradients(penalty, case), strict=True):
        largest = max(1.0, right.abs().max().item())
        torch.testing.assert_close(found / largest, right / largest, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ARCHITECTURES)
@given(
    case=cases(),
    exponent=exponents,
    chunk_size=chunk_sizes,
    acts=st.sampled_from(sorted(LAYOUTS_OF_ACTS)),
    decoder=st.sampled_from(sorted(DENSE_LAYOUTS)),
)
def test_penalty_of_an_architecture_is_the_function(
    name: str, case: Case, exponent: float, chunk_size: int | None, acts: str, decoder: str
) -> None:
    """For activations of any value: all laws of the function are laws of the architecture."""
    *_, prefix = penalties_of(name)
    own = {"coefficient": 1.0, "interval": 1, "scaling": "none", "chunk_size": chunk_size}
    own |= {"exponent": exponent} if prefix == "c2r" else {}
    d_sae, d_in = case.W_dec.shape
    options = {f"{prefix}_{option}": value for option, value in own.items()}
    sae = make_sae(name, d_sae=d_sae, d_in=d_in, dtype="float64", **options)
    rescaled = getattr(sae.cfg, "rescale_acts_by_decoder_norm", False)
    del sae.W_dec  # a parameter cannot be replaced by a tensor that has a history

    def of_architecture(feature_acts: Tensor, W_dec: Tensor) -> Tensor:
        sae.W_dec = DENSE_LAYOUTS[decoder](W_dec)
        relaid = LAYOUTS_OF_ACTS[acts](feature_acts)
        return sae._penalty_losses(step_input(sae), relaid)[f"{prefix}_loss"]

    def of_function(feature_acts: Tensor, W_dec: Tensor) -> Tensor:
        options = {"chunk_size": chunk_size, "generator": step_generator(0, 0)}
        if prefix == "ort":
            return orthogonality_penalty(W_dec, **options)
        own_acts = feature_acts if rescaled else feature_acts * W_dec.norm(dim=1)
        return c2r_penalty(own_acts, W_dec, exponent=exponent, **options)

    # In the decoder's gradient, terms cancel where two rows point the same way.
    lengths = case.W_dec.norm(dim=1)
    norms = case.feature_acts.norm(dim=0) * (1.0 if rescaled else lengths)
    largest_pair = (2 * norms.max().item()) ** exponent if prefix == "c2r" else 1.0
    largest_term = largest_pair / min(lengths[lengths > 0].tolist(), default=1.0)
    found, expected = gradients(of_architecture, case), gradients(of_function, case)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-12, atol=0)
    for each, right, terms in zip(found[1:], expected[1:], (0.0, largest_term), strict=True):
        largest = max(1.0, terms, right.abs().max().item())
        torch.testing.assert_close(each / largest, right / largest, rtol=0, atol=1e-12)


@given(pair=st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6))
def test_splitting_one_latent_over_two_never_lowers_the_norms(
    pair: list[tuple[float, float]],
) -> None:
    """Minkowski, Eq. (4); the norms are equal only where the two parts are proportional."""
    left, right = torch.tensor(pair, dtype=torch.float64).T
    columns = torch.stack([left, right, left + right], dim=1)
    *parts, whole = batch_norms(columns, torch.float64)
    assert sum(parts) >= whole * (1 - 1e-12)
    sine = (1 - torch.cosine_similarity(left, right, dim=0).clamp(-1, 1) ** 2).sqrt()
    if sine > 1e-3 and left.norm() > 1e-3 and right.norm() > 1e-3:
        assert sum(parts) > whole
