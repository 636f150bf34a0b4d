"""Tables, for a terminal and in Markdown. The first column names what a row is about."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from sae_lens_c2r.analysis.metrics import METRICS, Metric

_BETWEEN, _EDGES = 2, 1  # signs between two columns, and at a table's edges


def terminal_tables(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: float = math.inf,
    text: Collection[int] = (0,),
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
            if number == 0:  # no other column is broken
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


def short_names(names: Sequence[str]) -> list[str]:
    """The names without the folders that they share: their last parts at least."""
    parts = [name.split("/") for name in names]
    levels = zip(*(each[:-1] for each in parts), strict=False)
    n_shared = len(list(takewhile(lambda folders: len(set(folders)) == 1, levels)))
    return ["/".join(each[n_shared:]) for each in parts]


@dataclass(frozen=True)
class MetricTable:
    """A table of SAEs, with the metrics that any of them has."""

    metrics: list[Metric]
    rows: list[list[str]]  # the name of an SAE, and a cell for each metric

    @property
    def note(self) -> str:
        """The lines of the glossary on its metrics, each once."""
        lines: dict[str, str] = {}
        for metric in self.metrics:
            title = f"{metric.title[0].upper()}{metric.title[1:]}"
            lines.setdefault(metric.line, f"{title}: {metric.line}.")
        lines.pop("", None)
        return " ".join(lines.values())

    def in_terminal(self, *, width: int = 80) -> list[Table]:
        """Tables for `rich` to print, so many as the columns need in a terminal's width."""
        headings = [f"{m.heading or m.title}\n{m.arrow}".rstrip() for m in self.metrics]
        words = [number for number, metric in enumerate(self.metrics, 1) if not metric.shown]
        return terminal_tables(
            ["SAE", *headings], self.rows, width=width, text=(0, *words), note=self.note
        )

    def in_markdown(self, *, columns: int | None = None) -> str:
        """The table in Markdown; in several tables of so many `columns` at most, if given."""
        columns = columns or len(self.metrics) or 1
        parts = [
            markdown_table(
                ["SAE", *(metric.full_title for metric in self.metrics[at : at + columns])],
                [[row[0], *row[at + 1 : at + 1 + columns]] for row in self.rows],
            )
            for at in range(0, max(len(self.metrics), 1), columns)
        ]
        return "\n\n".join(parts)


def metric_table(
    saes: Sequence[tuple[str, Mapping[str, Any]]],
    among: Collection[str] = METRICS,
    *,
    blank: str = "",
) -> MetricTable:
    """The table of SAEs, by their names, of the metrics `among` which any of them has."""
    keys = [key for key in METRICS if key in among and any(key in each for _, each in saes)]
    rows = []
    for name, values in saes:
        shown = {key: format(values[key], METRICS[key].shown) for key in keys if key in values}
        rows.append([name, *(shown.get(key, blank) for key in keys)])
    return MetricTable([METRICS[key] for key in keys], rows)
