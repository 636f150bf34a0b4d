"""The tutorial runs from its first cell to its last, with little to train on."""

import json
import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.commands import FEWER_ROWS, FEWER_STEPS, Shell
from tests.forkserver import LIMIT, ROOT

PATH = ROOT / "docs" / "tutorial.ipynb"


@pytest.mark.usefixtures("forked")
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell.in_folder(tmp_path)
    variables = {"PYTHONPATH": str(ROOT), "NO_PROXY": "*"}
    variables["PATH"] = f"{shell.folder / 'bin'}:{os.environ['PATH']}"
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(PATH, as_version=4)
    [evaluating] = [cell for cell in notebook.cells if "evaluate tutorial" in cell.source]
    evaluating.source += f" {FEWER_ROWS}"
    [training] = [
        cell
        for cell in notebook.cells
        if "sae-lens-c2r demo" in cell.source and cell.cell_type == "code"
    ]
    training.source = training.source.replace(
        "demo --out tutorial --overwrite", f"train smollm2-demo --out tutorial {FEWER_STEPS}"
    )
    [drawing] = [cell for cell in notebook.cells if "plt.subplots" in cell.source]
    drawing.source = f"%matplotlib inline\n{drawing.source}"  # imported before the kernel was
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=LIMIT, resources=place).execute()
    shown = json.dumps([cell.get("outputs") for cell in notebook.cells])
    assert " apart, " in shown
    assert "image/png" in shown
    assert "JumpReLUSAE(" in shown
