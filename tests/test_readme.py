"""What the README prints works as printed."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from sae_lens_c2r.cli import main
from tests import forkserver
from tests.hub.server import TOKEN, serving

README = Path(__file__).parent.parent / "README.md"


def test_the_first_40_lines_end_with_the_demos_table() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()[:40]
    assert any(line.startswith("| `batchtopk_c2r` | 0.") for line in lines)


@pytest.mark.parametrize(
    "samples", ["20_000", pytest.param("500_000", marks=pytest.mark.exhaustive)]
)
def test_python_lines_run_one_after_the_other(tmp_path: Path, samples: str) -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count("training_samples=500_000") == 1  # a minute
    text = text.replace("training_samples=500_000", f"training_samples={samples}")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    process = forkserver.run("-c", "\n".join(blocks), cwd=tmp_path)
    assert process.returncode == 0, process.stderr


def test_a_dry_run_prints_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = README.read_text(encoding="utf-8")
    [block] = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    monkeypatch.setenv("COLUMNS", "110")
    with pytest.raises(SystemExit):
        main(["train", "gemma-2-2b-layer-12", "--dry-run", "--device", "cpu"])
    shown = {" ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
    lines = {" ".join(line.split()) for line in block.splitlines()} - {"..."}
    assert lines <= shown


COMMANDS = {
    "bin/sae-lens-c2r": 'exec {python} -m sae_lens_c2r "$@"',
    "bin/python": 'exec {python} "$@"',
    # A stand-in for an environment without us, for installing takes minutes.
    "plain/bin/python": "export TORCH_DEVICE_BACKEND_AUTOLOAD=0\n"
    """exec {python} -c "import sys; sys.modules['sae_lens_c2r'] = None; $2"\n""",
}


def test_uploading_works_as_printed(tmp_path: Path) -> None:
    """From the demo's output to an environment without us, line by line."""
    section = (
        README.read_text(encoding="utf-8").split("## Publishing SAEs")[1].split("\n## ")[0]
    )
    start, commands = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    assert start == "python -m tests.hub.server\n"
    assert f"HF_ENDPOINT=http://127.0.0.1:8899 HF_TOKEN={TOKEN}" in commands
    printed = commands.splitlines()
    assert printed[-3:-1] == ["python -m venv plain", "plain/bin/pip install sae-lens"]
    for name, script in COMMANDS.items():
        command = tmp_path / name
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text("#!/bin/sh\n" + script.format(python=forkserver.python()))
        command.chmod(0o755)
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "*"}
    environment["PATH"] = f"{tmp_path / 'bin'}:{environment['PATH']}"

    def run(script: str) -> str:
        process = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=forkserver.LIMIT,
        )
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    run("sae-lens-c2r demo --tokens 8192 --d-sae 128 --k 8")
    (tmp_path / "storage").mkdir()
    with serving(tmp_path / "storage") as hub:
        script = "\n".join([*printed[:-3], printed[-1]])
        output = run(script.replace("http://127.0.0.1:8899", hub.endpoint))
        assert list(hub.repos["me/minilm-demo"].tags) == ["v1"]
    assert "Nothing was sent" in output
    assert "Tagged v1." in output
    assert "JumpReLUSAE(" in output
