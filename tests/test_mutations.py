"""The planted faults of `tests/mutations.py` keep up with the code that they are planted in."""

import pytest

from tests.mutations import FAULTS, ROOT, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_fits(fault: Fault) -> None:
    assert fault.old in (ROOT / "sae_lens_c2r" / fault.file).read_text()
