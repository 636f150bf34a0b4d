"""The names that users rely on, and what is imported for them."""

import re
import subprocess
from pathlib import Path

import pytest

import sae_lens_c2r
from tests.forkserver import FRESH

PACKAGE = Path(sae_lens_c2r.__file__).parent
ARCHITECTURES = (
    *("AbsTopKC2R", "BatchTopKC2R", "GatedC2R", "JumpReLUC2R", "MatchingPursuitC2R"),
    *("MatryoshkaBatchTopKC2R", "OrtC2R", "Ort", "StandardC2R", "TopKC2R"),
)
PUBLIC = {
    *(f"{name}TrainingSAE" for name in ARCHITECTURES),
    *(f"{name}TrainingSAEConfig" for name in ARCHITECTURES),
    *("c2r_penalty", "composition", "nearest_neighbors", "orthogonality_penalty"),
    *("chance_composition", "hierarchy_absorption", "register", "with_c2r"),
}


def test_public_names_are_these_and_documented_and_others_are_attribute_errors() -> None:
    assert set(sae_lens_c2r.__all__) == PUBLIC
    assert set(dir(sae_lens_c2r)) >= PUBLIC
    assert all(getattr(sae_lens_c2r, name).__doc__ for name in PUBLIC)
    with pytest.raises(AttributeError, match="no attribute 'c2r_penality'"):
        _ = sae_lens_c2r.c2r_penality


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("sae_lens_c2r", "torch"),
        ("sae_lens_c2r.penalties", "sae_lens"),
        ("sae_lens_c2r.cli", "torch"),
    ],
)
def test_a_module_imports_no_more_than_it_should(module: str, forbidden: str) -> None:
    code = f"import sys, {module}; sys.exit({forbidden!r} in sys.modules)"
    assert subprocess.run([FRESH, "-c", code]).returncode == 0


# Rooms that may import those that stand before them, and none beside or behind.
ROOMS: tuple[tuple[str, ...], ...] = (
    *(("_support",), ("models", "penalties"), ("architectures", "analysis")),
    *(("reporting", "saes"), ("releases", "inspection"), ("training",), ("evaluation",)),
    *(("hub",), ("cli",)),
)


def test_imports_run_one_way() -> None:
    level = {room: number for number, rooms in enumerate(ROOMS) for room in rooms}
    imported = re.compile(r"^\s*from sae_lens_c2r\.(\w+)", re.MULTILINE)
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in PACKAGE.glob("*/**/*.py")
        for other in imported.findall(path.read_text())
        for own in [path.relative_to(PACKAGE).parts[0]]
        if other in level and own != other and level[other] >= level.get(own, len(ROOMS))
    ]
    assert not wrong
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} <= level.keys()
