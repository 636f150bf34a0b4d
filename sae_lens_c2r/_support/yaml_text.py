"""Reading YAML, with errors in one line; keys may not occur twice.

What a scalar is follows from the type of its key's field: text stays as it was written.
"""

import re
from collections.abc import Sequence
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from sae_lens_c2r._support.errors import UserError, one_line

# The fields of releases that are text: a commit like 695e0514 is no number.
TEXT_KEYS = {
    *("name", "description", "license", "repo_id", "status", "id", "hub_id", "revision"),
    *("hook_name", "dataset", "subset", "split", "column", "architecture"),
    *("release", "folder", "repo", "sae_id", "run_name", "wandb_project", "wandb_id"),
}
_NOT_PLAIN = re.compile(r"\s*(['\"!]|(~|null)?\s*$)", re.IGNORECASE)  # a text in YAML
_TEXT, _NULL = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null"


class _Loader(yaml.SafeLoader):
    """Refuse duplicate keys, and aliases: a few aliases may stand for billions of values."""

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        if self.check_event(yaml.AliasEvent):
            alias = self.peek_event()  # type: ignore[no-untyped-call]
            raise UserError(
                f"Line {alias.start_mark.line + 1} should spell out its value. Found the "
                f"alias `*{alias.anchor}`."
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[tuple[str, str], int] = {}
        for key in (key for key, _ in node.value if isinstance(key, ScalarNode)):
            name, line = (key.tag, key.value), key.start_mark.line + 1
            if name in lines:
                raise UserError(
                    f"`{key.value}` should occur once in a mapping. Found it in line "
                    f"{lines[name]} and in line {line}."
                )
            lines[name] = line
        for key, value in node.value:
            self.keep_text(str(key.value), value)
        return super().construct_mapping(node, deep=deep)

    def keep_text(self, key: str, value: Node) -> None:
        """Have the value of a key of text read as it is written, unless it has a tag."""
        if key in TEXT_KEYS and isinstance(value, ScalarNode):
            resolved = self.resolve(ScalarNode, value.value, (True, False))  # type: ignore[no-untyped-call]
            value.tag = _TEXT if value.tag == resolved != _NULL else value.tag


def _number(loader: _Loader, node: ScalarNode) -> float:
    """A number: 1e6 is a whole one, which a field for fractions takes too; 1e38 is none."""
    value = loader.construct_yaml_float(node)
    is_whole = "e" in node.value.lower() and value.is_integer() and abs(value) < 2**63
    return int(value) if is_whole else value


# YAML 1.1 would read 1e-4 as text.
_SCIENTIFIC = re.compile(r"[-+]?\d[\d_]*(\.[\d_]*)?[eE][-+]?\d+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _SCIENTIFIC, list("-+0123456789"))
_Loader.add_constructor("tag:yaml.org,2002:float", _number)


def _whole_number(loader: _Loader, node: ScalarNode) -> int:
    """A whole number: 010 is ten, where YAML 1.1 would read octal digits."""
    digits = node.value.replace("_", "")
    return int(digits) if digits.lstrip("+-").isdigit() else loader.construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)


def read_yaml(text: str) -> Any:
    """Read a text in YAML; a UserError in one line if it is none."""
    try:
        return yaml.load(text, _Loader)
    except UserError:
        raise
    # Beside YAML's own errors, some of its tags raise what Python's constructors do.
    except (yaml.YAMLError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
        raise UserError(f"It should be YAML. {one_line(error)}") from None
    except RecursionError:
        raise UserError("It is nested too deep.") from None


def parse_overrides(overrides: Sequence[str], *, example: str = "sae.k=50") -> dict[str, Any]:
    """The values that `--set` puts in place of a file's or a default, by their keys."""
    parsed = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not (key and equals):
            raise UserError("--set", f"be like {example}", f"`{override}`")
        if key.rpartition(".")[2] in TEXT_KEYS and not _NOT_PLAIN.match(value):
            parsed[key] = value.strip()  # as typed: YAML would cut it at ` #`
            continue
        try:
            parsed[key] = read_yaml(value)
        except UserError as error:
            should = "have a value in YAML"
            raise UserError(f"--set {override}", should, more=str(error)) from None
    return parsed
