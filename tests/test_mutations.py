"""The planted faults of `tests/mutations` keep up with the code that they are planted in."""

import pytest

from tests.mutations.faults import FAULTS, PACKAGE, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_fits(fault: Fault) -> None:
    assert fault.old in (PACKAGE / fault.file).read_text()
