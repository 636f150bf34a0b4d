"""What the README prints works as printed."""

import re
import subprocess
import sys
from pathlib import Path

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
