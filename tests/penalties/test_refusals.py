"""What is no input of a penalty is refused by the parameter's name, and no data is printed."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sae_lens_c2r import c2r_penalty, nearest_neighbors, orthogonality_penalty

pytestmark = pytest.mark.usefixtures("unchecked_types")
ACTS, W_DEC = torch.zeros(2, 3), torch.zeros(3, 4)
NUMBERS = [[0.123456789] * 3] * 1000


def c2r(W_dec: Any = W_DEC, feature_acts: Any = ACTS, **options: Any) -> object:
    return c2r_penalty(feature_acts, W_dec, **options)


@pytest.mark.parametrize(
    ("penalty", "name", "given", "error"),
    [
        (c2r, "feature_acts.shape", {"feature_acts": torch.zeros(2, 5)}, ValueError),
        (c2r, "feature_acts.shape", {"feature_acts": torch.zeros(3)}, ValueError),
        (c2r, "feature_acts.shape", {"feature_acts": torch.zeros(0, 3)}, ValueError),
        (c2r, "feature_acts.dtype", {"feature_acts": ACTS.long()}, TypeError),
        (c2r, "feature_acts.device", {"feature_acts": ACTS.to("meta")}, ValueError),
        (c2r, "W_dec.dtype", {"W_dec": W_DEC.int()}, TypeError),
        (c2r, "W_dec.layout", {"W_dec": W_DEC.to_sparse()}, ValueError),
        (c2r, "W_dec.device", {"W_dec": W_DEC.to("meta")}, ValueError),
        (orthogonality_penalty, "W_dec.device", {"W_dec": W_DEC.to("meta")}, ValueError),
        (nearest_neighbors, "W_dec.device", {"W_dec": W_DEC.to("meta")}, ValueError),
        (nearest_neighbors, "W_dec.shape", {"W_dec": torch.zeros(3)}, ValueError),
        (nearest_neighbors, "W_dec.shape", {"W_dec": torch.zeros(0, 3)}, ValueError),
        (nearest_neighbors, "W_dec.dtype", {"W_dec": W_DEC.long()}, TypeError),
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


@pytest.mark.parametrize("data", [NUMBERS, np.array(NUMBERS), tuple(NUMBERS)], ids=type)
@pytest.mark.parametrize(
    ("penalty", "name"),
    [
        *((c2r, name) for name in ("feature_acts", "W_dec", "neighbors", "exponent")),
        *((orthogonality_penalty, "W_dec"), (nearest_neighbors, "W_dec")),
    ],
)
def test_data_of_another_type_is_not_printed(
    penalty: Callable[..., object], name: str, data: Any
) -> None:
    said = f"`{name}` should .*Found `{name}` of .*{type(data).__name__}"
    with pytest.raises(TypeError, match=said) as error:
        penalty(**{name: data})
    assert "0.123" not in str(error.value)
