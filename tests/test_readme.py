"""What the README prints works as printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.hub.server import TOKEN, serving

README = Path(__file__).parent.parent / "README.md"


def test_the_first_40_lines_end_with_the_demos_table() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()[:40]
    assert any(line.startswith("| `batchtopk_c2r` | 0.") for line in lines)


def test_python_lines_run_one_after_the_other(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    process = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr


WITHOUT_US = """
import os, sys
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
program = "import sys; sys.modules['sae_lens_c2r'] = None; " + sys.argv[2]
os.execv(sys.executable, [sys.executable, "-c", program])
"""


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
    plain = tmp_path / "plain" / "bin" / "python"  # a stand-in: installing takes minutes
    plain.parent.mkdir(parents=True)
    plain.write_text(f"#!{sys.executable}\n{WITHOUT_US}")
    plain.chmod(0o755)
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "*"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"

    def run(script: str) -> str:
        process = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    run("sae-lens-c2r demo --tokens 20480 --d-sae 128 --k 8")
    (tmp_path / "storage").mkdir()
    with serving(tmp_path / "storage") as hub:
        script = "\n".join([*printed[:-3], printed[-1]])
        output = run(script.replace("http://127.0.0.1:8899", hub.endpoint))
        assert list(hub.repos["me/minilm-demo"].tags) == ["v1"]
    assert "Nothing was sent" in output
    assert "Tagged v1." in output
    assert "JumpReLUSAE(" in output
