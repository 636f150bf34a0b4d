"""Tables, for a terminal and in Markdown. The first column names what a row is about."""

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text


def terminal_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    text: Collection[int] = (0,),
    broken: Collection[int] = (0,),
    title: str | None = None,
    note: str | None = None,
) -> Table:
    """A table for `rich` to print.

    Args:
        headings: Of the columns.
        rows: Their cells, shown as they are: nothing in them is markup.
        text: The columns that hold text, which stands at the left; the others hold numbers.
        broken: The columns that are broken where there is no room for them.
        title: Above the table.
        note: Below the table.

    Returns:
        A renderable.
    """
    table = Table(
        title=title,
        caption=note,
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),  # fits a terminal of 80 columns
    )
    for number, heading in enumerate(headings):
        justify: Literal["left", "right"] = "left" if number in text else "right"
        if number in broken:
            table.add_column(heading, justify=justify, overflow="fold")
        else:
            table.add_column(heading, justify=justify, no_wrap=True)
    for cells in rows:
        table.add_row(*map(Text, cells))
    return table


def markdown_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, text: Collection[int] = (0,)
) -> str:
    """A table in Markdown; the columns but those of `text` are aligned as numbers."""
    ruler = ["---" if number in text else "--:" for number in range(len(headings))]
    return "\n".join(f"| {' | '.join(line)} |" for line in [headings, ruler, *rows])
