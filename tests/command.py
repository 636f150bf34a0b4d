"""The command `sae-lens-c2r`, as somebody runs it."""

import pytest

from sae_lens_c2r.cli import main


def run(*arguments: object) -> int:
    """The status with which it ends."""
    with pytest.raises(SystemExit) as left:
        main([*map(str, arguments)])
    return int(left.value.code or 0)
