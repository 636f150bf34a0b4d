"""Two encodings of a batch are told apart where they are of two SAEs."""

from pathlib import Path

import pytest
import torch

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.saes import encoding
from sae_lens_c2r.saes.encoding import encodes_alike

ENCODED = torch.arange(1.0, 65).repeat(16, 1).T  # 64 rows, each of a length of its own


def without(rows: int) -> torch.Tensor:
    """The encoding, rounded otherwise, of which so many rows are lost."""
    return torch.cat([torch.zeros(rows, 16), ENCODED[rows:] * (1 + 1e-6)])


@pytest.mark.parametrize(
    ("found", "expected", "dtype", "alike"),
    [
        (without(0), ENCODED, torch.float32, True),
        (without(3), ENCODED, torch.float32, True),
        (without(4), ENCODED, torch.float32, False),
        (ENCODED * 1.01, ENCODED, torch.float32, False),
        (ENCODED * 1.01, ENCODED, torch.bfloat16, True),
        *((ENCODED * n, ENCODED, torch.float32, False) for n in (torch.nan, torch.inf)),
        *((ENCODED * n, ENCODED * n, torch.float32, False) for n in (torch.nan, torch.inf)),
        (ENCODED[:, :-1], ENCODED, torch.float32, False),
    ],
)
def test_two_encodings_are_alike_but_for_rounding_and_very_few_rows(
    found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, alike: bool
) -> None:
    assert encodes_alike(found, expected, dtype=dtype) == alike


def test_a_process_that_dies_after_its_last_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.py"
    answer = "[open(each['outputs'], 'w') for each in json.load(sys.stdin)]"
    script.write_text(f"import json, sys; {answer}; sys.exit('free(): invalid pointer')")
    monkeypatch.setattr(encoding, "_SCRIPT", script)
    with pytest.raises(UserError, match="cannot load a folder"):
        encoding.encode_in_saelens_alone([(Path("a folder"), ENCODED)])
