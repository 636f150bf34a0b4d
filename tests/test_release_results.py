"""`python -m benchmarks.release`: what is kept of a trained release."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import release
from sae_lens_c2r.analysis import composition
from sae_lens_c2r.saes.sources import Source
from tests.releases.test_files import write


def test_everything_but_the_weights_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, results = tmp_path / "saes", tmp_path / "results"
    command = ["release", str(write(tmp_path)), "--out", str(out), "--results", str(results)]
    for _ in range(2):  # the second time there is nothing left to train
        monkeypatch.setattr(sys, "argv", [*command, "--device", "cpu"])
        release.main()
        kept = json.loads((results / "small" / "results.json").read_text())["saes"]
        assert len(kept) == 4
        for sae_id, found in kept.items():
            sae = Source(sae_id, out / sae_id).load("cpu")
            assert found["composition"] == pytest.approx(composition(sae.W_dec))
            assert set(found["sha256"]) == {
                "cfg.json",
                "sae_weights.safetensors",
                "training.json",
            }
            assert found["training"]["steps"] == 10
    assert (results / "small" / "max_cosines.svg").read_text().startswith("<svg")
    assert not list(results.rglob("*.safetensors"))
