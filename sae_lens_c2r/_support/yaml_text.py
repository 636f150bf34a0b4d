"""Reading YAML: pyyaml's safe loader, with keys that occur once and `1e-4` a number."""

import re
from collections.abc import Sequence
from typing import Any

import yaml
from yaml.nodes import MappingNode, ScalarNode

from sae_lens_c2r._support.errors import UserError, one_line


class _Loader(yaml.SafeLoader):
    """A loader for which a key that occurs twice in a mapping is an error."""

    def compose_mapping_node(self, anchor: Any) -> MappingNode:
        node, seen = super().compose_mapping_node(anchor), set()
        for key in (key for key, _ in node.value if isinstance(key, ScalarNode)):
            if (key.tag, key.value) in seen:
                problem = f"found the key `{key.value}` twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add((key.tag, key.value))
        return node


# YAML 1.1 would read 1e-4 as text.
_SCIENTIFIC = re.compile(r"[-+]?\d[\d_]*(\.[\d_]*)?[eE][-+]?\d+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _SCIENTIFIC, list("-+0123456789"))


def read_yaml(text: str) -> Any:
    """Read a text in YAML; a UserError in one line if it is none."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"It should be YAML. {one_line(error)}") from None


def parse_overrides(overrides: Sequence[str], *, example: str = "sae.k=50") -> dict[str, Any]:
    """The values that `--set` puts in place of a file's or a default, by their keys."""
    parsed = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not (key and equals):
            raise UserError("--set", f"be like {example}", f"`{override}`")
        try:
            parsed[key] = read_yaml(value)
        except UserError as error:
            should = "have a value in YAML"
            raise UserError(f"--set {override}", should, more=str(error)) from None
    return parsed
