"""YAML of somebody's: what it says, unless saying it takes all of the memory."""

import math
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sae_lens_c2r._support.errors import UserError, one_line

MOST_NODES = 100_000  # of what aliases stand for: a few lines of them may stand for billions
_MOST_DIGITS = 1000  # Python has limits for text of integers, which YAML's base 60 passes by
_MOST_EXACT = 2**53  # of whole numbers that are floating
_INTEGER = "tag:yaml.org,2002:int"


def read_yaml(text: str) -> Any:
    """What a text in YAML says.

    Args:
        text: The text.

    Returns:
        Its mappings, lists and values.

    Raises:
        UserError: If it is no YAML, has a key twice in a mapping, an integer that is too
            long, or aliases that stand for themselves or for too much. In one line.
    """
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, {})
        return loader.construct_document(node)
    except UserError:
        raise
    except RecursionError:
        raise UserError("It should not be nested as deep as it is.") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: of a date that there is not
        raise UserError(f"It should be YAML. {one_line(error)}") from None
    except (ArithmeticError, AttributeError, LookupError):  # each of some tag
        raise UserError("It should be YAML, with values that fit their tags, `!!`.") from None


def as_yaml_number(value: object, problem: str) -> str:
    """What to write where a number is meant, and YAML has text.

    Args:
        value: What was found.
        problem: Pydantic's name of what is wrong with it, such as `float_type`.

    Returns:
        A sentence, after a space; empty if no number is meant.
    """
    try:
        number = float(value) if isinstance(value, str) else math.nan
    except ValueError:
        return ""
    if not math.isfinite(number) or not problem.startswith(("int", "float")):
        return ""
    whole = number.is_integer() and abs(number) < _MOST_EXACT
    written = f"{int(number):_}" if whole else yaml.safe_dump(number).split()[0]
    return f" YAML reads it as text: write {written}."


def _count(node: Node, counts: dict[int, int | None]) -> int:
    """How many nodes there are once each alias is what it stands for.

    Args:
        node: Where to begin.
        counts: Those of the nodes that were seen, by their ids; `None` where one has begun.

    Returns:
        The number.

    Raises:
        UserError: If there is no end to it, there are too many, or a key is there twice.
    """
    if id(node) in counts:
        counted = counts[id(node)]
        if counted is None:
            raise UserError(f"Line {_line(node)} should not hold an alias of itself.")
        return counted
    if node.tag == _INTEGER and len(node.value) > _MOST_DIGITS:
        raise UserError(
            f"Line {_line(node)} should have integers of at most {_MOST_DIGITS:,} characters. "
            f"Found {len(node.value):,}."
        )
    counts[id(node)] = None
    count = 1 + sum(_count(inner, counts) for inner in _inner(node))
    if count > MOST_NODES:
        raise UserError(
            f"Line {_line(node)} should stand for at most {MOST_NODES:,} values, with each "
            f"alias in full. Found {count:,}."
        )
    counts[id(node)] = count
    return count


def _inner(node: Node) -> list[Node]:
    """The nodes below a node."""
    if isinstance(node, MappingNode):
        _check_keys(node)
        return [inner for pair in node.value for inner in pair]
    return list(node.value) if isinstance(node, SequenceNode) else []


def _check_keys(mapping: MappingNode) -> None:
    first: dict[tuple[str, str], int] = {}
    for key in (key for key, _ in mapping.value if isinstance(key, ScalarNode)):
        said = (key.tag, key.value)
        if said in first:
            raise UserError(
                f"`{key.value}` should be there once in a mapping. Found it in line "
                f"{first[said]} and in line {_line(key)}."
            )
        first[said] = _line(key)


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1
