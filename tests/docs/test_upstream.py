"""What is written for SAELens's and SAEBench's authors still holds for what is installed."""

import os
import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import forkserver
from tests.forkserver import LIBRARIES, ROOT

PAGE = ROOT / "docs" / "upstream.md"
ITEMS = re.findall(
    r"^## (\w+): (.*?)$.*?^```python\n(.*?)^```$",
    PAGE.read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)
PACKAGES = {"SAELens": "sae-lens", "SAEBench": "sae-bench"}
WITHOUT_US = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def test_every_item_has_a_reproduction() -> None:
    assert len(ITEMS) == PAGE.read_text(encoding="utf-8").count("\n## ") == 8


@pytest.mark.parametrize(
    ("package", "title", "reproduction"), ITEMS, ids=[title for _, title, _ in ITEMS]
)
def test_it_still_is_so(package: str, title: str, reproduction: str, tmp_path: Path) -> None:
    if package == "SAEBench" and find_spec("sae_bench") is None:
        pytest.skip("needs SAEBench, an extra that `make test` installs")
    # Nobody has imported SAELens where it is the point that it is imported.
    level = LIBRARIES if "entry point" in title else None
    process = forkserver.run("-c", reproduction, cwd=tmp_path, env=WITHOUT_US, level=level)
    assert process.returncode == 0, (
        f"{package} {version(PACKAGES[package])} does not do what docs/upstream.md says under "
        f"{title!r}. If it was mended, take the item off that page, and the workaround out of "
        f"the code. {process.stderr[-500:]}"
    )
