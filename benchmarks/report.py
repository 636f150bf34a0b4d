"""Tables of methods and their differences, of one size of a world, and at another schedule."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.compare import (
    CONTRASTS,
    METRICS,
    PRICE,
    Contrast,
    at_strength,
    intervals,
    label,
    metrics_of,
    over_seeds,
    points_of,
    verdict,
)
from benchmarks.experiment import CHOICE_SEED, METHODS, PLAIN, Drawn, Size
from benchmarks.show import lines_figure
from sae_lens_c2r.reporting.tables import markdown_table

WORDS = {"yes": " **ahead**", "no": " **behind**", "undecided": " **undecided**"}


def of_size(rows: pd.DataFrame, size: Size) -> pd.DataFrame:
    """Return the rows of a size, of all training lengths."""
    return rows[(rows.world == size.world) & (rows.seed != CHOICE_SEED)]


def of_full_length(rows: pd.DataFrame, size: Size) -> pd.DataFrame:
    """Return the rows of a size without those that were trained for longer or shorter."""
    ours = of_size(rows, size)
    return ours[ours.samples == size.samples]


def method_tables(rows: pd.DataFrame, size: Size) -> dict[str, str]:
    """Return the tables of a size, in Markdown, by their names."""
    full = of_full_length(rows, size)
    return {
        "questions": questions_table(full, size),
        "methods": methods_table(full, size),
        **({"sparsities": sparsities_table(full, size)} if len(size.ks) > 1 else {}),
        **({"lengths": lengths_table(rows, size)} if size.other_samples else {}),
    }


def questions_table(rows: pd.DataFrame, size: Size) -> str:
    """Return each question with the differences that answer it, at the first sparsity."""
    ours, metrics = rows[rows.k == size.ks[0]], metrics_of(rows)
    answers = ((each, _answer(each, ours, metrics, size)) for each in CONTRASTS)
    table = [[*each.words, *answer] for each, answer in answers if answer]
    return _table(["of", "less", "where", "seeds"], metrics, table)


def sparsities_table(rows: pd.DataFrame, size: Size) -> str:
    """Return what can be asked at more sparsities than the first, and in mean of them all."""
    metrics = [metric for metric in metrics_of(rows) if METRICS[metric].by_sparsity]
    by_k = {f"{k:g}": here for k, here in rows.groupby("k")}
    table = []
    for each in CONTRASTS:
        parts = {**by_k, "all": each.of_complete_seeds(rows, size.ks)}
        table += _answers(each, parts, f"{size.ks[0]:g}", metrics, size)
    return _table(["of", "less", "where", "k", "seeds"], metrics, table)


def lengths_table(rows: pd.DataFrame, size: Size) -> str:
    """Return what can be asked of more than one training length, at the first sparsity."""
    # With strengths that not every length has, a curve would be finer at one than at another.
    ours = of_size(rows, size)
    metrics, rows = metrics_of(ours), ours[ours.k == size.ks[0]]
    lengths = rows.groupby(["method", "strength"]).samples.transform("nunique")
    groups = rows[lengths == rows.samples.nunique()].groupby("samples")
    parts, table = {f"{samples:,}": here for samples, here in groups}, []
    for samples, here in parts.items():
        plain = here[here.method == PLAIN]
        table.append([PLAIN, "", "", samples, str(len(plain)), *intervals(plain[metrics])])
    for each in CONTRASTS:
        table += _answers(each, parts, f"{size.samples:,}", metrics, size)
    return _table(["of", "less", "where", "samples", "seeds"], metrics, table)


def _answers(
    question: Contrast,
    parts: Mapping[str, pd.DataFrame],
    main: str,
    metrics: Sequence[str],
    size: Size,
) -> list[list[str]]:
    """Return the answers by parts of the rows, none where only the main part has one."""
    found = {
        part: answer
        for part, rows in parts.items()
        if (answer := _answer(question, rows, metrics, size))
    }
    if set(found) <= {main, "all"}:
        return []
    return [[*question.words, part, *answer] for part, answer in found.items()]


def _answer(
    question: Contrast, rows: pd.DataFrame, metrics: Sequence[str], size: Size
) -> list[str] | None:
    """Return on how many seeds the differences rest, and they; `None` if there are none."""
    differences = question.by_seed_and_k(rows, metrics)
    found, cells = over_seeds(differences), []
    for metric in metrics:
        about = METRICS[metric]
        said = verdict(
            found[metric], about.better or 1, about.smallest if size.of_interest else 0.0
        )
        shown = found[metric].signed + (WORDS.get(said, "") if about.better else "")
        cells.append("" if said == "not measured" else shown)
    seeds = differences[PRICE].dropna().index.get_level_values("seed")
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
            table.append([*about, *intervals(chosen)])
    return _table(["k", "", "seeds"], metrics, table)


def learning_rates_table(rows: pd.DataFrame) -> str:
    """Return what comes of BatchTopK by learning rate and decay, the best first."""
    metrics = metrics_of(rows)
    table = [
        [f"{row.lr:g}", f"{row.decay:g}", *(f"{row[metric]:.3f}" for metric in metrics)]
        for _, row in rows.sort_values(PRICE, ascending=False).iterrows()
    ]
    return _table(["learning rate", "decay"], metrics, table)


def between_table(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """Return what BatchTopK has, and what others add to it, in some rows less others."""
    metrics, table = metrics_of(first, second), []
    plain = [at_strength(rows, PLAIN, 0, metrics) for rows in (first, second)]
    for point in (each for each in points_of(first) if each in points_of(second)):
        gaps = at_strength(first, *point, metrics) - at_strength(second, *point, metrics)
        name = PLAIN
        if point[0] != PLAIN:
            gaps, name = gaps - (plain[0] - plain[1]), f"{label(*point)} less {PLAIN}"
        table.append([name, *(each.signed for each in over_seeds(gaps).values())])
    return _table([""], metrics, table)


def curves(rows: pd.DataFrame) -> Figure:
    """Draw every method's curve over its strength: what is gained against what it costs."""
    found = []
    for method, ours in rows.groupby("method", sort=False):
        if METHODS[method].curve:
            curve = pd.concat([rows[rows.method == PLAIN], ours])
            found.append(curve.assign(line=method, point=curve.strength, x=curve[PRICE]))
    metrics = [metric for metric in metrics_of(rows) if METRICS[metric].drawn]
    points = pd.concat(found).melt(["k", "line", "point", "x"], metrics, "column", "y")
    points["row"] = points.k.map("k = {:g}".format)
    points["column"] = points.column.map(lambda metric: METRICS[metric].label)
    return lines_figure(points.sort_values("k", kind="stable"), METRICS[PRICE].label)


def draw_sizes(rows: pd.DataFrame, sizes: Mapping[str, Sequence[Size]]) -> Drawn:
    """Draw every size that there are rows of."""
    full = {name: of_full_length(rows, size) for name, [size] in sizes.items()}
    known = {name: ours for name, ours in full.items() if len(ours)}
    return Drawn(
        {name: method_tables(rows, *sizes[name]) for name in known},
        lambda: {name: curves(ours) for name, ours in known.items()},
    )


def draw_schedules(rows: pd.DataFrame, sizes: Mapping[str, Sequence[Size]]) -> Drawn:
    """Draw sizes of which the second is the first at another learning rate and decay."""
    drawn = draw_sizes(rows, sizes)
    (name, [size]), (other_name, [other]), *_ = sizes.items()
    if not {name, other_name} <= set(drawn.tables):
        return drawn
    chosen_by = rows[(rows.world == size.world) & (rows.seed == CHOICE_SEED)]
    full, full_other = of_full_length(rows, size), of_full_length(rows, other)
    drawn.tables[name]["learning rates"] = learning_rates_table(chosen_by)
    drawn.tables[name]["between schedules"] = between_table(full_other, full)
    return drawn
