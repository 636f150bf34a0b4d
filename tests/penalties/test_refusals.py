"""Shapes, devices, neighbours and options that do not fit are refused by their names."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from sae_lens_c2r import analysis, c2r_penalty, nearest_neighbors, orthogonality_penalty
from sae_lens_c2r.analysis.recovery import feature_recovery
from sae_lens_c2r.penalties import transfer_factor, typical_norm

pytestmark = pytest.mark.usefixtures("unchecked_types")
ACTS, W_DEC = torch.zeros(2, 3), torch.zeros(3, 4)


def c2r(W_dec: Any = W_DEC, feature_acts: Any = ACTS, **options: Any) -> object:
    return c2r_penalty(feature_acts, W_dec, **options)


@pytest.mark.parametrize(
    ("penalty", "name", "given", "error"),
    [
        (c2r, "feature_acts.shape", {"feature_acts": torch.zeros(2, 5)}, ValueError),
        (c2r, "feature_acts.shape", {"feature_acts": torch.zeros(3)}, ValueError),
        (c2r, "feature_acts.shape", {"feature_acts": torch.zeros(0, 3)}, ValueError),
        (c2r, "feature_acts.device", {"feature_acts": ACTS.to("meta")}, ValueError),
        (c2r, "W_dec.device", {"W_dec": W_DEC.to("meta")}, ValueError),
        (orthogonality_penalty, "W_dec.device", {"W_dec": W_DEC.to("meta")}, ValueError),
        (nearest_neighbors, "W_dec.device", {"W_dec": W_DEC.to("meta")}, ValueError),
        (nearest_neighbors, "W_dec.shape", {"W_dec": torch.zeros(3)}, ValueError),
        (nearest_neighbors, "W_dec.shape", {"W_dec": torch.zeros(0, 3)}, ValueError),
        (c2r, "chunk_size", {"chunk_size": 1}, ValueError),
        (c2r, "chunk_size", {"chunk_size": 2.0}, TypeError),
        (c2r, "chunk_size", {"chunk_size": True}, TypeError),
        (c2r, "exponent", {"exponent": 0}, ValueError),
        (c2r, "exponent", {"exponent": float("nan")}, ValueError),
        (c2r, "exponent", {"exponent": "1"}, TypeError),
        (c2r, "pairs", {"pairs": "some"}, ValueError),
        (c2r, "gate", {"gate": "tanh"}, ValueError),
        (c2r, "neighbors", {"neighbors": torch.tensor([-1, 0, 1])}, ValueError),
        (c2r, "neighbors", {"neighbors": torch.arange(3), "pairs": "all"}, ValueError),
        (c2r, "neighbors.dtype", {"neighbors": torch.zeros(3)}, TypeError),
        (c2r, "neighbors.shape", {"neighbors": torch.zeros(4).long()}, ValueError),
        (c2r, "neighbors.device", {"neighbors": torch.zeros(3).long().to("meta")}, ValueError),
    ],
)
def test_bad_input_is_named(
    penalty: Callable[..., object], name: str, given: dict[str, Any], error: type
) -> None:
    with pytest.raises(error, match=rf"Parameter `{re.escape(name)}` should .*Found"):
        penalty(**given)


EYE = torch.eye(3)
NAN = EYE.clone().fill_diagonal_(torch.nan)
MEASURES: list[tuple[Callable[..., object], tuple[Any, ...]]] = [
    *((measure, ()) for measure in (analysis.composition, analysis.max_cosines)),
    *((nearest_neighbors, ()), (analysis.absorption_pairs, ([EYE],))),
    (analysis.pairs_above, (0.5,)),
    *((analysis.latents_of_features, (EYE,)), (analysis.latents_per_feature, (EYE,))),
]


@pytest.mark.parametrize(("measure", "others"), MEASURES)
@pytest.mark.parametrize("W_dec", [EYE[0], EYE[:0], EYE.to("meta"), NAN, EYE / 0])
def test_what_is_no_decoder_is_not_measured(
    W_dec: Any, measure: Callable[..., object], others: tuple[Any, ...]
) -> None:
    with pytest.raises(ValueError, match=r"Parameter `W_dec[.a-z]*` should .*Found"):
        measure(W_dec, *others)


TRANSFER: dict[str, Any] = {"batch_size": 8, "d_sae": 4, "d_in": 4, "chunk_size": None}
SIZES: dict[str, Any] = {"d_in": 4, "d_sae": 32}


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("W_dec", lambda: analysis.composition(torch.zeros(3, 4))),
        ("above", lambda: analysis.max_cosines_and_counts(EYE, above=[torch.nan])),
        ("above", lambda: analysis.co_firing([EYE], above=[-0.1])),
        ("above", lambda: analysis.latents_per_feature(EYE, EYE, above="0.5")),
        ("cosine", lambda: analysis.pairs_above(EYE, "0.5")),
        ("feature_vectors.shape", lambda: analysis.latents_of_features(EYE, W_DEC)),
        ("feature_vectors.shape", lambda: analysis.latents_per_feature(EYE, W_DEC)),
        ("feature_vectors", lambda: analysis.latents_of_features(EYE, NAN)),
        ("feature_vectors.device", lambda: analysis.latents_of_features(EYE, EYE.to("meta"))),
        ("feature_acts.shape", lambda: analysis.absorption_pairs(EYE[:2], [EYE])),
        ("feature_acts.shape", lambda: analysis.absorption_pairs(torch.ones(4, 3), [EYE])),
        ("feature_acts.device", lambda: analysis.absorption_pairs(EYE, [EYE.to("meta")])),
        ("batches", lambda: analysis.absorption_pairs(EYE, [NAN])),
        ("batches", lambda: analysis.absorption_pairs(EYE, iter(()))),
        *(
            ("batches", lambda batches=batches: analysis.co_firing(batches))
            for batches in (EYE, [], [EYE[0]], [NAN])
        ),
        *(
            ("feature_acts.shape", lambda wrong=wrong: analysis.co_firing([EYE, wrong]))
            for wrong in (EYE[:0], torch.ones(2, 4))
        ),
        ("pairs.shape", lambda: analysis.pair_jaccards([EYE], torch.tensor([[0, 1, 2]]))),
        ("pairs", lambda: analysis.pair_jaccards([EYE], torch.tensor([[0, 3]]))),
        ("pairs", lambda: analysis.pair_jaccards([EYE], torch.tensor([[0, -1]]))),
        ("batch_size", lambda: feature_recovery(None, None, batch_size=0)),
        *(
            (name, lambda wrong={name: value}: transfer_factor(**{**TRANSFER, **wrong}))
            for name, value in {"batch_size": 0, "d_sae": -4, "d_in": "4", "gate": "x"}.items()
        ),
        ("sae_in.shape", lambda: typical_norm(EYE[:0])),
    ],
)
def test_other_arguments_are_named(name: str, call: Callable[[], object]) -> None:
    said = rf"Parameter `{re.escape(name)}` should .*Found"
    with pytest.raises((TypeError, ValueError), match=said):
        call()
