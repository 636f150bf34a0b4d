"""The site is built, and every link in it leads somewhere."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.forkserver import FRESH, ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it; its tools are an extra of their own."""
    pytest.importorskip("mkdocs", reason="an extra that `make test` installs")
    folder = tmp_path_factory.mktemp("site")
    command = [FRESH, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_api_has_what_users_import_with_its_formulas(site: Path) -> None:
    html = (site / "api" / "index.html").read_text(encoding="utf-8")
    shown = set(re.findall(r'id="sae_lens_c2r\.[\w.]*\.(\w+)"', html))
    penalties = {"c2r_penalty", "nearest_neighbors", "orthogonality_penalty"}
    hub = {"upload", "Submission", "Target", "show_proposal", "write_card"}
    assert shown >= penalties | hub | {"composition", "co_firing", "with_c2r", "start_from"}
    assert "math::" not in html
    assert ":math:" not in html
    assert r"\mathcal L_{C^2R} = \frac 1k \sum_{i=1}^k \rho_i^2" in html
