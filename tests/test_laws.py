"""The laws of the penalty, for the function and for every architecture."""

from collections.abc import Collection
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sae_lens_c2r import c2r_penalty, nearest_neighbors
from sae_lens_c2r.penalties import step_generator
from tests import properties
from tests.architectures.training import make_sae
from tests.properties import Penalty
from tests.strategies import (
    ARCHITECTURES,
    DENSE_LAYOUTS,
    LAYOUTS_OF_ACTS,
    VALUES,
    Case,
    Layout,
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


def of_the_excess(acts: Tensor, W_dec: Tensor, **options: object) -> Tensor:
    """The function, with the gate that opens at the level of chance."""
    return c2r_penalty(acts, W_dec, **{**options, "gate": "excess"})


FUNCTIONS = {
    "the function": c2r_penalty,
    "the function in chunks": in_chunks,
    "the function with other neighbors": with_other_neighbors,
    "the function in bfloat16": in_bfloat16,
    "the function with the excess gate": of_the_excess,
}


def penalty_of(
    name: str,
    exponent: float = 1.0,
    *,
    chunk_size: int | None = None,
    layout: Layout = LAYOUTS_OF_ACTS["contiguous"],
) -> Penalty:
    """The penalty of one of `FUNCTIONS` or of a named architecture."""
    if name in FUNCTIONS:
        return lambda acts, W_dec: FUNCTIONS[name](
            layout(acts), W_dec, exponent=exponent, chunk_size=chunk_size
        )
    if name == "ort":
        make = partial(make_sae, name, ort_chunk_size=chunk_size)
        return properties.penalty_of_architecture(make, "ort", layout)
    make = partial(make_sae, name, c2r_exponent=exponent, c2r_chunk_size=chunk_size)
    return properties.penalty_of_architecture(make, "c2r", layout)


def every(*, but: Collection[str] = ()) -> pytest.MarkDecorator:
    """All functions and architectures for which a law holds."""
    names = [name for name in [*FUNCTIONS, *ARCHITECTURES] if name not in but]
    return pytest.mark.parametrize("name", names)


ROUNDED = {"the function in bfloat16"}
LABELLED = {"the function in chunks", "the function with other neighbors"}


@every()
@given(case=cases(), exponent=exponents, chunk_size=chunk_sizes)
def test_is_finite_and_not_negative(
    name: str, case: Case, exponent: float, chunk_size: int | None
) -> None:
    penalty = penalty_of(name, exponent, chunk_size=chunk_size)
    properties.is_finite_and_not_negative(penalty, case)


@every()
@given(case=cases(), data=st.data())
def test_is_zero_for_a_decoder_without_acute_angles(
    name: str, case: Case, data: st.DataObject
) -> None:
    """Coordinate axes of either direction and any length, in any order, some rows 0."""
    d_sae = case.d_sae
    axes = torch.eye(2 * d_sae, dtype=torch.float64).repeat_interleave(2, dim=0)
    axes[1::2] *= -1
    rows = torch.tensor(data.draw(st.permutations(range(len(axes)))))[:d_sae]
    lengths = torch.tensor(
        data.draw(st.lists(st.just(0.0) | st.floats(1e-6, 10), min_size=d_sae, max_size=d_sae)),
        dtype=torch.float64,
    )
    case = Case(case.feature_acts, axes[rows] * lengths[:, None])
    properties.is_zero_without_positive_cosines(penalty_of(name), case)


@every(but={"ort"})
@given(case=cases())
def test_gate_is_between_0_and_1(name: str, case: Case) -> None:
    properties.gate_is_between_0_and_1(penalty_of(name), case)


@every(but=ROUNDED | {"ort"})
@given(case=cases(), scale=st.floats(1e-3, 1e3), exponent=exponents)
def test_is_homogeneous(name: str, case: Case, scale: float, exponent: float) -> None:
    properties.is_homogeneous(penalty_of(name, exponent), case, scale, exponent)


@every()
@given(case=cases(), data=st.data())
def test_ignores_signs_of_activations(name: str, case: Case, data: st.DataObject) -> None:
    signs = data.draw(
        st.lists(st.sampled_from([-1.0, 1.0]), min_size=case.d_sae, max_size=case.d_sae)
    )
    properties.ignores_signs_of_activations(penalty_of(name), case, torch.tensor(signs))


@every(but=ROUNDED)
@given(case=cases(), data=st.data())
def test_ignores_the_order_of_samples(name: str, case: Case, data: st.DataObject) -> None:
    order = torch.tensor(data.draw(st.permutations(range(len(case.feature_acts)))))
    properties.ignores_order_of_samples(penalty_of(name), case, order)


@every(but=ROUNDED | LABELLED)
@given(case=cases(), data=st.data())
def test_ignores_the_order_of_latents(name: str, case: Case, data: st.DataObject) -> None:
    order = torch.tensor(data.draw(st.permutations(range(case.d_sae))))
    properties.ignores_order_of_latents(penalty_of(name), case, order)


@every(but=ROUNDED)
@given(case=cases(), data=st.data())
def test_ignores_lengths_of_decoder_rows(name: str, case: Case, data: st.DataObject) -> None:
    lengths = data.draw(
        st.lists(st.floats(1e-2, 1e2), min_size=case.d_sae, max_size=case.d_sae)
    )
    properties.ignores_lengths_of_decoder_rows(
        penalty_of(name), case, torch.tensor(lengths, dtype=torch.float64)
    )


@every(but=ROUNDED)
@given(
    case=cases(),
    acts=st.sampled_from(sorted(LAYOUTS_OF_ACTS)),
    decoder=st.sampled_from(sorted(DENSE_LAYOUTS)),
)
def test_ignores_layout(name: str, case: Case, acts: str, decoder: str) -> None:
    penalty, other = penalty_of(name), penalty_of(name, layout=LAYOUTS_OF_ACTS[acts])
    properties.ignores_layout(
        penalty, lambda acts, W_dec: other(acts, DENSE_LAYOUTS[decoder](W_dec)), case
    )


@given(pair=st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6))
def test_splitting_one_latent_over_two_never_lowers_the_norms(
    pair: list[tuple[float, float]],
) -> None:
    left, right = torch.tensor(pair, dtype=torch.float64).T
    properties.splitting_never_lowers_the_norms(left, right)
