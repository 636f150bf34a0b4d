"""What a command line sets in place of what a file or a default says: `--set sae.k=50`."""

from collections.abc import Sequence
from typing import Any

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.yaml_text import read_yaml


def parse_changes(changes: Sequence[str], *, example: str = "sae.k=50") -> dict[str, Any]:
    """The values that `--set` gives, by their keys."""
    parsed = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not (key and equals):
            raise UserError(f"`--set` should be like {example}. Found `{change}`.")
        try:
            parsed[key] = read_yaml(value)
        except UserError as error:
            raise UserError(f"`--set {change}` should have a value in YAML. {error}") from None
    return parsed
