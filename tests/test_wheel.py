"""What is shipped: a wheel finds its releases without the checkout that it was built from."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sae_lens_c2r.releases.files import REGISTRY
from tests import forkserver
from tests.docs.test_site import URLS
from tests.forkserver import LIBRARIES, ROOT

COMMAND = """
import sys, sae_lens_c2r
from sae_lens_c2r.cli import main
assert sae_lens_c2r.__file__.startswith(sys.argv[1]), sae_lens_c2r.__file__
main(sys.argv[2:])
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that a wheel was installed in."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT]
    subprocess.run(build, check=True)
    [wheel] = folder.glob("*.whl")
    target = folder / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--target", target, wheel], check=True)
    return target


def test_a_wheel_holds_every_release(installed: Path) -> None:
    shipped = {path.name for path in (installed / "sae_lens_c2r" / "registry").glob("*.yaml")}
    assert shipped == {path.name for path in REGISTRY.glob("*.yaml")}


def test_what_pypi_shows_has_no_link_into_the_checkout(installed: Path) -> None:
    [path] = installed.glob("sae_lens_c2r-*.dist-info/METADATA")
    shown = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]*)\)", shown)
    assert f"{URLS['Repository']}/blob/main/docs/evidence.md" in links
    assert f"{URLS['Documentation']}evidence.svg" in links
    assert all(link.startswith("https://") for link in links)
    assert len(links) == len(re.findall(r"\]\(", (ROOT / "README.md").read_text()))


def run_installed(installed: Path, cwd: Path, *arguments: str) -> str:
    """Run a program with what was installed; returns what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    process = forkserver.run("-c", *arguments, cwd=cwd, env=environment, level=LIBRARIES)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_a_wheel_plans_a_release_by_name_and_writes_a_new_one(
    installed: Path, tmp_path: Path
) -> None:
    command = (installed, tmp_path, COMMAND, str(installed))
    plan = ("train", "gemma-2-2b-layer-12", "--dry-run", "--device", "cpu")
    assert "244,141 steps of 2,048" in run_installed(*command, *plan)
    run_installed(*command, "registry", "new", "mine")
    assert 'name: "mine"' in (tmp_path / "mine.yaml").read_text()


RENDER = """
import sys
from pathlib import Path
from sae_lens_c2r.hub.card import card_files
from sae_lens_c2r.hub.facts import RepoFacts
facts = RepoFacts.read(Path(sys.argv[1], "sae-lens-c2r.json").read_bytes())
Path("README.md").write_bytes(card_files(facts)["README.md"])
"""


def test_a_wheel_renders_a_card(installed: Path, tmp_path: Path) -> None:
    shipped = ROOT / "hub_cards" / "demo"
    run_installed(installed, tmp_path, RENDER, str(shipped))
    card = (tmp_path / "README.md").read_text()
    assert card == (shipped / "README.md").read_text()
