"""Putting tables into pages of the docs, whose text is written by hand."""

import re
from collections.abc import Mapping
from pathlib import Path

_PART = re.compile(r"(<!-- begin (.+?) -->\n).*?(\n<!-- end \2 -->)", re.DOTALL)


def fill(page: str, tables: Mapping[str, str]) -> str:
    """Replace what is between the marks of each table.

    Args:
        page: The page, with `<!-- begin NAME -->` and `<!-- end NAME -->`.
        tables: The tables by their names.

    Returns:
        The page with these tables.

    Raises:
        ValueError: If a mark names no table, or a table has no mark.
    """
    marked = {name for _, name, _ in _PART.findall(page)}
    if marked != set(tables):
        raise ValueError(
            f"The page should have marks for {sorted(tables)}. Found {sorted(marked)}."
        )
    return _PART.sub(lambda part: part[1] + tables[part[2]] + part[3], page)


def refill(page: Path, tables: Mapping[str, str]) -> None:
    """Write a page anew with these tables, as `fill` puts them into its text.

    Args:
        page: The page's file.
        tables: The tables by their names.

    Raises:
        ValueError: If a mark names no table, or a table has no mark; nothing is written then.
    """
    page.write_text(fill(page.read_text(encoding="utf-8"), tables), encoding="utf-8")
