"""Figures, and the pages that tables and figures are put into."""

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.compare import Interval

_PLACE = re.compile(r"(<!-- begin (.+?) -->\n).*?(\n<!-- end \2 -->)", re.DOTALL)


def lines_figure(points: pd.DataFrame, xlabel: str, *, log: bool = False) -> Figure:
    """Draw lines through means of `x` and `y`, with their intervals as bars."""
    # `row` and `column` name the panel. Values of one `point` of a `line` are averaged. Lines
    # of one name are told apart by their `group`.
    rows, columns = list(points.row.unique()), list(points.column.unique())
    size = (3.2 * len(columns), 0.5 + 2.7 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(rows), len(columns), squeeze=False, sharey=False)
    colors = {line: f"C{number}" for number, line in enumerate(points.line.unique())}
    drawn = {}
    lines = ["row", "column", "line", *(["group"] if "group" in points else [])]
    for (row, column, line, *_), here in points.dropna(subset="y").groupby(lines, sort=False):
        panel = axes[rows.index(row), columns.index(column)]
        groups = here.groupby("point")
        x, y = ([Interval.of(of) for _, of in groups[name]] for name in ("x", "y"))
        drawn[line] = panel.errorbar(
            [each.mean for each in x],
            [each.mean for each in y],
            xerr=np.nan_to_num([each.half_width for each in x], posinf=0.0),
            yerr=np.nan_to_num([each.half_width for each in y], posinf=0.0),
            color=colors[line],
            marker="o",
            markersize=3,
            linewidth=1,
        )
        panel.set(title=column if row == rows[0] else "", xlabel=xlabel)
        panel.set_ylabel(row if column == columns[0] else "")
        panel.set_xscale("log" if log else "linear")
        panel.spines[["top", "right"]].set_visible(False)
    n = min(len(drawn), len(columns) + 1)  # More would be wider than the panels.
    handles, names = list(drawn.values()), list(drawn)
    figure.legend(handles, names, loc="outside lower center", ncols=n, frameon=False)
    return figure


def page_of(tables: Mapping[str, str]) -> str:
    """Return a page of tables below their names."""
    parts = (f"## {name[0].upper()}{name[1:]}\n\n{table}\n" for name, table in tables.items())
    return "\n".join(parts)


def fill(page: str, tables: Mapping[str, str]) -> str:
    """Replace what is between the marks of each table, `<!-- begin NAME -->` and `end`."""
    marked = {name for _, name, _ in _PLACE.findall(page)}
    if marked != set(tables):
        raise ValueError(
            f"The page should have marks for {sorted(tables)}. Found {sorted(marked)}."
        )
    return _PLACE.sub(lambda part: part[1] + tables[part[2]] + part[3], page)
