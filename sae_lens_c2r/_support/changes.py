"""What a command line sets in place of what a file or a default says: `--set sae.k=50`."""

from collections.abc import Sequence
from typing import Any

import yaml

from sae_lens_c2r._support.errors import UserError, one_line


def parse_changes(changes: Sequence[str], *, example: str = "sae.k=50") -> dict[str, Any]:
    """The values that `--set` gives, by their keys."""
    parsed = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not (key and equals):
            raise UserError(f"`--set` should be like {example}. Found `{change}`.")
        try:
            parsed[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UserError(
                f"`--set {change}` should have a value in YAML. {one_line(error)}"
            ) from None
    return parsed
