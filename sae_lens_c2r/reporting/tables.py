"""Tables, for a terminal and in Markdown. The first column names what a row is about."""

from collections.abc import Collection, Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text


def terminal_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    text: Collection[int] = (0,),
    title: str | None = None,
    note: str | None = None,
) -> Table:
    """A table for `rich` to print.

    Args:
        headings: Of the columns.
        rows: Their cells, shown as they are: nothing in them is markup.
        text: The columns that hold text: it stands at the left and is broken where there is
            no room. What the others hold are numbers.
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
        if number in text:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    for cells in rows:
        table.add_row(*map(Text, cells))
    return table


def markdown_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, text: Collection[int] = (0,)
) -> str:
    """A table in Markdown.

    Args:
        headings: Of the columns.
        rows: Their cells, in Markdown themselves.
        text: The columns that hold text; the others are aligned as numbers.

    Returns:
        Its lines.
    """
    ruler = ["---" if number in text else "--:" for number in range(len(headings))]
    return "\n".join(f"| {' | '.join(line)} |" for line in [headings, ruler, *rows])
