"""`sae-lens-c2r train`: what it says when it is ended."""

from pathlib import Path
from typing import Any

import pytest

from tests.command import run
from tests.releases.test_files import write


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (KeyboardInterrupt(), 130, "Interrupted."),
        (OSError("The disk is full."), 1, "The disk is full."),
    ],
)
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_it_says_how_to_go_on_where_there_is_a_checkpoint(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    has_checkpoint: bool,
    error: BaseException,
    status: int,
    says: str,
) -> None:
    def end(_plan: Any, out: Path, **_options: Any) -> None:
        if has_checkpoint:
            (out / ".training" / "step-000000003").mkdir(parents=True)
        raise error

    monkeypatch.setattr("sae_lens_c2r.training.train.train", end)
    out = tmp_path / "saes"
    assert run("train", write(tmp_path), "--out", out, "--device", "cpu") == status
    advice = " `--resume` continues from the last checkpoint." if has_checkpoint else ""
    assert capsys.readouterr().err.endswith(f"{says}{advice}\n")
