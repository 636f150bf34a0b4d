"""The tables and figures that worlds share, and the pages that they are put into."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.compare import (
    CONTRASTS,
    METRICS,
    PRICE,
    Contrast,
    Interval,
    at_strength,
    intervals,
    label,
    metrics_of,
    over_seeds,
    points_of,
    verdict,
)
from benchmarks.experiment import CHOICE_SEED, METHODS, PLAIN, Drawn, Size
from sae_lens_c2r.reporting.tables import markdown_table

WORDS = {"yes": " **ahead**", "no": " **behind**", "undecided": " **undecided**"}
_PLACE = re.compile(r"(<!-- begin (.+?) -->\n).*?(\n<!-- end \2 -->)", re.DOTALL)


def of_full_length(rows: pd.DataFrame, size: Size) -> pd.DataFrame:
    """Return the rows of a size without those that were trained for longer or shorter."""
    ours = rows[(rows.world == size.world) & (rows.seed != CHOICE_SEED)]
    return ours[ours.samples == size.samples]


def method_tables(rows: pd.DataFrame, size: Size) -> dict[str, str]:
    """Return the tables of a size, in Markdown, by their names."""
    full = of_full_length(rows, size)
    main, ks = full[full.k == size.ks[0]], size.ks[:1]
    return {
        "questions": _answers_table({"": (main, ks)}, "", metrics_of(main), size),
        "methods": methods_table(full, size),
        **({"sparsities": sparsities_table(full, size)} if len(size.ks) > 1 else {}),
        **({"lengths": lengths_table(rows, size)} if size.other_samples else {}),
    }


def sparsities_table(rows: pd.DataFrame, size: Size) -> str:
    """Return what can be asked at more sparsities than the first, and in mean of them all."""
    metrics = [metric for metric in metrics_of(rows) if METRICS[metric].by_sparsity]
    by_k = {f"{k:g}": (rows, [k]) for k in sorted(rows.k.unique())}
    parts = {**by_k, "all": (rows, size.ks)}
    return _answers_table(parts, "k", metrics, size, less={f"{size.ks[0]:g}", "all"})


def lengths_table(rows: pd.DataFrame, size: Size) -> str:
    """Return what can be asked of more than one training length, at the first sparsity."""
    # With strengths that not every length has, a curve would be finer at one than at another.
    rows = rows[(rows.world == size.world) & (rows.seed != CHOICE_SEED)]
    metrics, ks, rows = metrics_of(rows), size.ks[:1], rows[rows.k == size.ks[0]]
    lengths = rows.groupby(["method", "strength"]).samples.transform("nunique")
    groups = rows[lengths == rows.samples.nunique()].groupby("samples")
    parts, first = {f"{samples:,}": (here, ks) for samples, here in groups}, []
    for samples, (here, _) in parts.items():
        plain = here[here.method == PLAIN]
        first.append([PLAIN, "", "", samples, str(len(plain)), *intervals(plain[metrics])])
    return _answers_table(parts, "samples", metrics, size, first, less={f"{size.samples:,}"})


def _answers_table(
    parts: Mapping[str, tuple[pd.DataFrame, Sequence[float]]],  # rows, and which sparsities
    by: str,  # the parts' heading, if there are several
    metrics: Sequence[str],
    size: Size,
    first: Iterable[list[str]] = (),
    less: Collection[str] = (),
) -> str:
    """Return the questions that other parts than some answer, with what each part answers."""
    table = [*first]
    for each in CONTRASTS:
        found = {
            part: answer
            for part, (rows, ks) in parts.items()
            if (answer := _answer(each, rows, ks, metrics, size))
        }
        if not set(found) <= set(less):
            about = ([part] if by else [] for part in found)
            lines = zip(about, found.values(), strict=True)
            table += [[*each.words, *part, *answer] for part, answer in lines]
    return _table(["of", "minus", "where", *([by] if by else []), "seeds"], metrics, table)


def _answer(
    question: Contrast,
    rows: pd.DataFrame,
    ks: Sequence[float],
    metrics: Sequence[str],
    size: Size,
) -> list[str] | None:
    """Return on how many seeds the differences rest, and they; `None` if there are none."""
    differences = question.by_complete_seed(rows, ks, metrics)
    # What is known of fewer seeds than the line says is not told, nor of two which is ahead.
    everywhere, cells = differences.notna().all(), []
    for metric, gap in over_seeds(differences).items():
        about = METRICS[metric]
        answer = verdict(gap, about.better or 1, about.smallest if size.of_interest else 0.0)
        word = WORDS.get(answer, "") if about.better and gap.count > 2 else ""
        known = answer != "not measured" and everywhere[metric]
        cells.append(gap.signed + word if known else "")
    seeds = differences.index.get_level_values("seed")
    return [str(seeds.nunique()), *cells] if any(cells) else None


def _table(head: list[str], metrics: Iterable[str], table: list[list[str]]) -> str:
    return markdown_table([*head, *(METRICS[metric].label for metric in metrics)], table)


def methods_table(rows: pd.DataFrame, size: Size) -> str:
    """Return every method at every strength and sparsity."""
    metrics, table = metrics_of(rows), []
    for k in size.ks:
        here = rows[rows.k == k]
        for point in points_of(here):
            chosen = at_strength(here, *point, metrics)
            about = [f"{k:g}", label(*point), str(len(chosen))]
            cells = zip(intervals(chosen), chosen.notna().all(), strict=True)
            table.append([*about, *(cell if known else "" for cell, known in cells)])
    return _table(["k", "", "seeds"], metrics, table)


def learning_rates_table(rows: pd.DataFrame, worlds: Iterable[str]) -> str:
    """Return what comes of BatchTopK by learning rate and decay, the best first."""
    rows = rows[rows.world.isin(worlds) & (rows.seed == CHOICE_SEED)]
    metrics = metrics_of(rows)
    table = [
        [f"{row.lr:g}", f"{row.decay:g}", *(f"{row[metric]:.3f}" for metric in metrics)]
        for _, row in rows.sort_values(PRICE, ascending=False).iterrows()
    ]
    return _table(["learning rate", "decay"], metrics, table)


def between_table(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """Return what BatchTopK has, and what others add to it, in some rows minus others."""
    metrics, table = metrics_of(first, second), []
    plain = [at_strength(rows, PLAIN, 0, metrics) for rows in (first, second)]
    for point in (each for each in points_of(first) if each in points_of(second)):
        gaps = at_strength(first, *point, metrics) - at_strength(second, *point, metrics)
        name = PLAIN
        if point[0] != PLAIN:
            gaps, name = gaps - (plain[0] - plain[1]), f"{label(*point)} minus {PLAIN}"
        table.append([name, *(each.signed for each in over_seeds(gaps).values())])
    return _table([""], metrics, table)


def curves(
    rows: pd.DataFrame, methods: Iterable[str], ys: Mapping[str, str], xlabel: str
) -> Figure:
    """Draw methods over `x` by their strengths; those that have a curve begin at BatchTopK."""
    lines = []
    for method in methods:
        shown = {method, PLAIN} if METHODS[method].curve else {method}
        lines.append(rows[rows.method.isin(shown)].assign(line=method))
    points = pd.concat(lines).sort_values("k", kind="stable")
    return lines_figure(points.assign(point=points.strength), ys, xlabel)


def curves_of_size(rows: pd.DataFrame) -> Figure:
    """Draw what every curve gains against what it costs."""
    methods = [method for method in rows.method.unique() if METHODS[method].curve]
    ys = {each: METRICS[each].label for each in metrics_of(rows) if METRICS[each].drawn}
    rows = rows.assign(row=rows.k.map("k = {:g}".format), x=rows[PRICE])
    return curves(rows, methods, ys, METRICS[PRICE].label)


def draw_sizes(rows: pd.DataFrame, sizes: Mapping[str, Sequence[Size]]) -> Drawn:
    """Draw every size that there are rows of."""
    full = {name: of_full_length(rows, size) for name, [size] in sizes.items()}
    known = {name: ours for name, ours in full.items() if len(ours)}
    return Drawn(
        {name: method_tables(rows, *sizes[name]) for name in known},
        lambda: {name: curves_of_size(ours) for name, ours in known.items()},
    )


def draw_schedules(rows: pd.DataFrame, sizes: Mapping[str, Sequence[Size]]) -> Drawn:
    """Draw sizes of which the second is the first at another learning rate and decay."""
    drawn = draw_sizes(rows, sizes)
    (name, [size]), (other_name, [other]), *_ = sizes.items()
    if not {name, other_name} <= set(drawn.tables):
        return drawn
    full, full_other = of_full_length(rows, size), of_full_length(rows, other)
    drawn.tables[name]["learning rates"] = learning_rates_table(rows, [size.world])
    drawn.tables[name]["between schedules"] = between_table(full_other, full)
    return drawn


def lines_figure(
    points: pd.DataFrame, ys: Mapping[str, str], xlabel: str, *, log: bool = False
) -> Figure:
    """Draw lines through means of `x` and each of `ys`, with their intervals as bars."""
    # `row` and the label of a y name the panel. Values of one `point` of a `line` are averaged.
    # Lines of one name are told apart by their `group`.
    lines = ["row", "column", "line", *(["group"] if "group" in points else [])]
    about = [name for name in (*lines, "point", "x") if name != "column"]
    points = points.rename(columns=ys).melt(about, list(ys.values()), "column", "y")
    rows, columns = list(points.row.unique()), list(points.column.unique())
    size = (3.2 * len(columns), 0.5 + 2.7 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(rows), len(columns), squeeze=False, sharey=False)
    colors = {line: f"C{number}" for number, line in enumerate(points.line.unique())}
    colors |= {PLAIN: "black"}  # in every figure, and on top: where curves begin
    drawn = {}
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
            zorder=3 if line == PLAIN else 2,
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
    return _PLACE.sub(lambda part: part[1] + tables[part[2]] + part[3], page)
