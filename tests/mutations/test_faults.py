"""The planted faults are of the code as it is."""

from tests.mutations.faults import FAULTS


def test_every_fault_fits_the_code() -> None:
    assert [str(fault) for fault in FAULTS if not fault.fits()] == []
