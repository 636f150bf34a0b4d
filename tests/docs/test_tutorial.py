"""The tutorial runs from its first cell to its last, with little to train on."""

import json
import os
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.commands import FEWER_ROWS, Shell
from tests.docs.test_site import URLS
from tests.forkserver import FRESH, LIMIT, ROOT

PATH = ROOT / "docs" / "tutorial.ipynb"
NOTEBOOK = nbformat.read(PATH, as_version=4)
SMALL = {"SAE_LENS_C2R_TUTORIAL_TOKENS": "8192", "SAE_LENS_C2R_TUTORIAL_LATENTS": "256"}


@pytest.mark.usefixtures("forked")
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell.in_folder(tmp_path)
    variables = {**SMALL, "PYTHONPATH": str(ROOT), "NO_PROXY": "*"}
    variables["PATH"] = f"{shell.folder / 'bin'}:{os.environ['PATH']}"
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(PATH, as_version=4)
    [evaluating] = [cell for cell in notebook.cells if "evaluate tutorial" in cell.source]
    evaluating.source += f" {FEWER_ROWS}"
    [drawing] = [cell for cell in notebook.cells if "plt.subplots" in cell.source]
    drawing.source = f"%matplotlib inline\n{drawing.source}"  # imported before the kernel was
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=LIMIT, resources=place).execute()
    shown = json.dumps([cell.get("outputs") for cell in notebook.cells])
    assert "of them merged" in shown
    assert "image/png" in shown
    assert "Tagged v1." in shown
    assert "JumpReLUSAE(" in shown


def test_the_tests_of_another_package_are_no_hub(tmp_path: Path) -> None:
    """Elsewhere than in a checkout something else may be called `tests`."""
    [cell] = [cell.source for cell in NOTEBOOK.cells if "tests.hub.server" in cell.source]
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    program = f"import os\nfrom pathlib import Path\n{cell}\nassert 'HUB' not in os.environ"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("HUB", None)
    command = [FRESH, "-c", program]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "tests"]


def test_it_is_committed_as_it_ran_and_opens_in_colab_from_the_repository() -> None:
    """With all outputs, of one run from the top, none of them an error."""
    cells = [
        cell
        for cell in NOTEBOOK.cells
        if cell.cell_type == "code" and "skip-execution" not in cell.metadata.get("tags", [])
    ]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = [output.output_type for cell in cells for output in cell.outputs]
    assert kinds
    assert "error" not in kinds
    assert PATH.stat().st_size < 1_000_000
    place = URLS["Repository"].replace("https://github.com", "github")
    text = PATH.read_text(encoding="utf-8")
    assert f"https://colab.research.google.com/{place}/blob/main/docs/tutorial.ipynb" in text
