"""Who imports what."""

import ast
from pathlib import Path

import sae_lens_c2r

PACKAGE = Path(sae_lens_c2r.__file__).parent


def imported_by(path: Path) -> set[str]:
    """The packages that a file imports, at its top or within a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_one_module_imports_transformer_lens() -> None:
    """Its version 4 has moved what SAELens and this package use of it."""
    files = [each for each in PACKAGE.rglob("*.py") if "transformer_lens" in imported_by(each)]
    assert files == [PACKAGE / "releases" / "language_models.py"]
