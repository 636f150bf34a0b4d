"""What is shipped: a wheel finds its releases without the checkout that it was built from."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from sysconfig import get_path

import pytest
import torch

from sae_lens_c2r.releases.files import REGISTRY
from tests import forkserver
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
from sae_lens_c2r.hub.repo_record import RepoRecord
facts = RepoRecord.read(Path(sys.argv[1], "sae-lens-c2r.json").read_bytes())
Path("README.md").write_bytes(card_files(facts)["README.md"])
"""


def test_a_wheel_renders_a_card(installed: Path, tmp_path: Path) -> None:
    shipped = ROOT / "hub_cards" / "smollm2-135m-layer-9"
    run_installed(installed, tmp_path, RENDER, str(shipped))
    card = (tmp_path / "README.md").read_text()
    assert card == (shipped / "README.md").read_text()


def test_torch_loads_a_wheel(installed: Path) -> None:
    code = "import sys, torch; print(sys.modules['sae_lens_c2r'].__file__)"
    environment = {**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{get_path('purelib')}"}
    command = [sys.executable, "-S", "-c", code]  # without the environment's own install
    ran = subprocess.run(
        command, cwd=installed, env=environment, capture_output=True, text=True
    )
    assert Path(ran.stdout.strip()).is_relative_to(installed), ran.stderr


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkout, and the Python of an environment with an editable install of it."""
    folder = tmp_path_factory.mktemp("editable")
    checkout, home = folder / "checkout", folder / "environment"
    left_out = shutil.ignore_patterns(".*", "__pycache__", "tests", "docs", "benchmarks")
    shutil.copytree(ROOT, checkout, ignore=left_out)
    build = "from hatchling.build import build_editable; build_editable('..')"
    subprocess.run([sys.executable, "-c", build], cwd=checkout, check=True)
    venv.create(home, symlinks=True)
    [wheel] = folder.glob("*.whl")
    [site] = home.glob("lib/python*/site-packages")
    shutil.unpack_archive(wheel, site, "zip")
    (site / "torch.pth").write_text(get_path("purelib"))  # whose own .pth are not read
    return checkout, home / "bin" / "python"


BREAKS: dict[str, Callable[[Path], object]] = {
    "whole": lambda _: None,
    "moved": lambda checkout: checkout.rename(checkout.with_name("moved")),
    "deleted": lambda checkout: shutil.rmtree(checkout),
    "no Python": lambda checkout: (checkout / "sae_lens_c2r/__init__.py").write_text("a b"),
    "ends": lambda checkout: (checkout / "sae_lens_c2r/discovery.py").write_text("exit(3)"),
}


@pytest.mark.parametrize("way", BREAKS)
def test_torch_is_imported_whatever_became_of_a_checkout(
    way: str, editable: tuple[Path, Path], tmp_path: Path
) -> None:
    checkout, python = editable
    shutil.copytree(checkout, tmp_path / "kept")
    BREAKS[way](checkout)
    try:
        for errors in ([], ["-W", "error::UserWarning"]):
            code = "import torch, sys; print(torch.__version__, 'wrapt' in sys.modules)"
            command = [python, *errors, "-c", code]
            ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
            assert ran.returncode == 0, ran.stderr
            assert ran.stdout.split() == [torch.__version__, str(way == "whole")]
            assert ran.stderr.count("It was not loaded: ") == (way != "whole")
    finally:
        shutil.rmtree(checkout, ignore_errors=True)
        shutil.move(tmp_path / "kept", checkout)
