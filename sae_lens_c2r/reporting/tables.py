"""Tables, for a terminal and in Markdown. The first column names what a row is about."""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

_BETWEEN, _EDGES = 2, 1  # signs between two columns, and at a table's edges


def terminal_tables(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: float = math.inf,
    text: Collection[int] = (0,),
    broken: int = 0,
    note: str | None = None,
) -> list[Table]:
    """A table for `rich`, without markup, in parts as wide as `width`, each with the names."""
    needed = [
        max(len(line) for cell in column for line in cell.split("\n")) + _BETWEEN
        for column in zip(headings, *rows, strict=True)
    ]
    parts = [[0]]
    for number in range(1, len(headings)):
        part = parts[-1]
        if len(part) > 1 and sum(needed[n] for n in (*part, number)) + _EDGES > width:
            parts.append([0])
        parts[-1].append(number)
    tables = []
    for part in parts:
        table = Table(
            caption=note if part is parts[-1] else None,
            caption_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, 1, 0, 0),  # fits a terminal of 80 columns
        )
        for number in part:
            justify: Literal["left", "right"] = "left" if number in text else "right"
            if number == broken:  # no other column is
                table.add_column(headings[number], justify=justify, overflow="fold")
            else:
                table.add_column(headings[number], justify=justify, no_wrap=True)
        for cells in rows:
            table.add_row(*(Text(cells[number]) for number in part))
        tables.append(table)
    return tables


def markdown_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, text: Collection[int] = (0,)
) -> str:
    """A table in Markdown; the columns but those of `text` are aligned as numbers."""
    ruler = ["---" if number in text else "--:" for number in range(len(headings))]
    return "\n".join(f"| {' | '.join(line)} |" for line in [headings, ruler, *rows])
