"""What CONTRIBUTING lists for other projects holds for the versions that are installed."""

import os
import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import forkserver
from tests.forkserver import LIBRARIES, ROOT

SCRIPTS = sorted((Path(__file__).parent / "upstream").glob("*.py"))
WITHOUT_US = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def test_every_script_is_listed() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\(tests/docs/upstream/(\w+\.py)\)", page)
    assert sorted(listed) == [path.name for path in SCRIPTS]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_still_is_so(script: Path, tmp_path: Path) -> None:
    text = script.read_text(encoding="utf-8")
    package = "sae_bench" if "sae_bench" in text else "sae_lens"
    if find_spec(package) is None:
        pytest.skip("needs SAEBench, an extra that `make test` installs")
    # Nobody has imported SAELens where it is the point that it is imported.
    level = LIBRARIES if script.stem == "entry_point" else None
    process = forkserver.run("-c", text, cwd=tmp_path, env=WITHOUT_US, level=level)
    assert process.returncode == 0, (
        f"{package} {version(package.replace('_', '-'))} has changed. If it was mended, take "
        f"{script.name} away, its line out of CONTRIBUTING.md, and the workaround out of the "
        f"code. {process.stderr[-500:]}"
    )
