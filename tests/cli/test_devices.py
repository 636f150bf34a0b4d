"""A device that torch does not have: one line, before any work."""

from pathlib import Path

import pytest

from tests.architectures.training import make_sae
from tests.command import run


@pytest.mark.parametrize("command", ["inspect", "evaluate"])
@pytest.mark.parametrize("device", ["nowhere", "meta"])
def test_a_device_that_torch_does_not_have_is_named(
    tmp_path: Path, command: str, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_sae("topk_c2r").save_inference_model(tmp_path / "sae")
    out = tmp_path / "out"
    assert run(command, tmp_path / "sae", "--out", out, "--device", device) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert (
        "`--device` should be a device that torch has here, such as cpu or cuda. Found" in said
    )
    assert not out.exists()
