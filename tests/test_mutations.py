"""The planted faults of `tests/mutations` keep up with the code that they are planted in."""

import ast

import pytest

from tests.mutations.faults import FAULTS, PACKAGE, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_every_fault_fits(fault: Fault) -> None:
    """If not, write what the code says now into `faults.txt`."""
    [path] = fault.files()
    ast.parse(path.read_text().replace(fault.old, fault.new))
    assert all((PACKAGE.parent / test).exists() for test in fault.tests)
