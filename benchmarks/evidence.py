"""The pages' figures and tables, from the rows that all worlds keep.

`python -m benchmarks.evidence` draws the figures of `docs/evidence.md` and fills `PAGES`.
"""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from benchmarks.compare import Contrast, label
from benchmarks.differences import (
    COLUMNS,
    DATA,
    POINTS,
    SHOWN,
    SMALLEST,
    ByData,
    by_k,
    by_method,
    cell,
    differences,
    from_plain,
    rows_kept,
    rows_of,
    table,
)
from benchmarks.experiment import PLAIN
from benchmarks.report import curves, fill
from benchmarks.worlds import transfer
from benchmarks.worlds.transfer import by_data, curves_of, turns
from sae_lens_c2r.reporting.figures import svg
from sae_lens_c2r.reporting.tables import markdown_table

DOCS = Path("docs")
PAGES = [Path(page) for page in SHOWN["pages"]]
COLORS = {**{point: f"C{number}" for number, point in enumerate(POINTS)}, ("C2R", 2.0): "C9"}
SHORT_POINTS = [("C2R", 2.0), *POINTS]  # of that in README
ALL_COLUMNS = {**COLUMNS, **SHOWN["drawn"]}
MUCH = 0.05  # absorption
FARTHEST = 40  # percent of the unexplained variance that the figure shows


def forest(
    found: ByData, measures: Sequence[str], points: Sequence[tuple[str, float]], *, lines: int
) -> Figure:
    """Draw the differences from BatchTopK: a row for each data set, a panel for a measure."""
    figure = Figure(
        figsize=(7.4, 1.4 + lines * (0.8 + 0.19 * len(found))), layout="constrained"
    )
    grid = figure.subplots(lines, -(-len(measures) // lines), sharey=True, squeeze=False)
    for panel in grid.flat[len(measures) :]:
        panel.axis("off")
    for panel, measure in zip(grid.flat, measures, strict=False):
        forest_panel(panel, found, measure, points)
    first = grid[0, 0]
    n_seeds = (
        max(each["unexplained"].count for each in here.values()) for here in found.values()
    )
    names = (f"{name} ({count:.0f})" for name, count in zip(found, n_seeds, strict=True))
    first.set_yticks(range(len(found)), list(names))
    first.set_ylim(len(found) - 0.5, -0.5)
    handles = first.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(points), frameon=False)
    return figure


def forest_panel(
    panel: Axes, found: ByData, measure: str, points: Sequence[tuple[str, float]]
) -> None:
    """Draw the differences of one measure, a row for each data set."""
    for at, here in enumerate(found.values()):
        of_row = next(iter(here.values()))["percent_of_interest"].mean
        smallest = of_row if measure == "percent" else SMALLEST[measure]
        panel.barh(at, 2 * smallest, height=1, left=-smallest, color="0.9")
    panel.axvline(0, color="0.4", linewidth=0.8)
    n_real = sum(name in SHOWN["real"] for name in found)
    panel.axhline(n_real - 0.5, color="0.4", linewidth=0.8, linestyle=":")
    for number, point in enumerate(points):
        shown = [
            (row + 0.6 * ((number + 0.5) / len(points) - 0.5), here[point][measure])
            for row, here in enumerate(found.values())
            if point in here and here[point][measure].half_width < float("inf")
        ]
        color = COLORS[point]
        panel.errorbar(
            [each.mean for _, each in shown],
            [row for row, _ in shown],
            xerr=[each.half_width for _, each in shown],
            fmt="o",
            color=color,
            markersize=4,
            linewidth=1.2,
            label=label(*point),
        )
        for row, each in shown if measure == "percent" else ():
            if each.mean > FARTHEST:
                panel.plot(FARTHEST, row, ">", color=color, markersize=5, clip_on=False)
    if measure == "percent":
        panel.set_xlim(*np.clip(panel.get_xlim(), -30, FARTHEST))
    title = ALL_COLUMNS[measure]
    panel.set_title(textwrap.fill(title, 14), fontsize=10)
    panel.set_xlabel("higher is better" if measure == "found" else "lower is better")
    panel.locator_params(axis="x", nbins=3)
    panel.xaxis.set_major_formatter("{x:g}")
    panel.grid(axis="y", color="0.93")


def over_unexplained(rows: pd.DataFrame, ys: Mapping[str, str]) -> Figure:
    """Draw what methods bring over what they leave unexplained, a panel for each measure."""
    methods = ("C2R", "OrtSAE", "Matryoshka", "JumpReLU", PLAIN)
    return curves(rows.assign(row="", x=rows.unexplained), methods, ys, "unexplained variance")


def of_hierarchies() -> pd.DataFrame:
    """Return absorption and what is unexplained, by trained pair, at λ = 0 and at 5."""
    rows = rows_kept("apart").assign(unexplained=lambda rows: 1 - rows.explained_variance)
    ours = rows[rows.world.str.contains("hierarchy")]
    values = ["absorption", "unexplained"]
    return ours.pivot(index=["world", "batch_size", "seed"], columns="strength", values=values)


def hierarchies_told() -> str:
    """Return how often λ = 5 lowers absorption in hierarchies, and for how much."""
    pairs = of_hierarchies()
    means = pairs.groupby(["world", "batch_size"]).mean()
    much = means.absorption[0.0] >= MUCH
    lower, falls = means.absorption[5.0] < means.absorption[0.0], means[much].absorption
    fall = 100 * (1 - falls[5.0] / falls[0.0])
    where = [place[:2] in means.index[much] for place in pairs.index]
    of_pairs = pairs[where].absorption
    n_lower = (of_pairs[5.0] < of_pairs[0.0]).sum()
    more = 100 * (means[much].unexplained[5.0] / means[much].unexplained[0.0] - 1)
    by_cost = more.sort_values().index
    halves = [by_cost[: len(more) // 2], by_cost[len(more) // 2 :]]
    medians = [(fall[half].median(), more[half].median()) for half in halves]
    return (
        f"Absorption is lower in {lower.sum()} of {len(means)} settings. BatchTopK absorbs "
        f"{MUCH} or more in {much.sum()}; there it falls in {lower[much].sum()}, and in "
        f"{n_lower} of {len(of_pairs)} pairs of trainings. Falls and costs go together: in the "
        f"{len(halves[0])} settings where C2R costs less, medians are {medians[0][0]:.0f} % "
        f"less absorption and {medians[0][1]:.0f} % more unexplained variance; in the other "
        f"{len(halves[1])}, {medians[1][0]:.0f} % and {medians[1][1]:.0f} % (at most "
        f"{more.max():,.0f} %)."
    )


def hierarchies() -> Figure:
    """Draw absorption with C2R over absorption without it, a point for each hierarchy."""
    found = of_hierarchies().groupby(["world", "batch_size"]).mean().absorption
    figure = Figure(figsize=(4.6, 4.2), layout="constrained")
    panel = figure.subplots()
    panel.plot([0, 0.19], [0, 0.19], color="0.5", linewidth=0.8)
    panel.plot(found[0.0], found[5.0], "o", color="C0", markersize=5)
    panel.set(xlabel="absorption of BatchTopK", ylabel="absorption with C2R 5")
    return figure


def apart_table() -> str:
    """Return differences where one seed draws world and weights, and where two draw them."""
    measures, body = SHOWN["of_apart"], []
    for name in SHOWN["apart"]:
        world, samples = DATA[name]
        for k, rows in rows_of(world, samples, kept_by="apart").groupby("k"):
            together = from_plain(rows_of(world, samples, k))
            for point, apart in from_plain(rows).items():
                both = (together[point], apart)
                cells = (cell(each, measure) for measure in measures for each in both)
                body.append([name, f"{k:g}", label(*point), *cells])
    head = (f"{COLUMNS[name]}, {how}" for name in measures for how in ("together", "apart"))
    return markdown_table(["data", "k", "minus BatchTopK", *head], body)


def corrected(found: ByData) -> str:
    """Return how many differences are told from 0, by themselves and among so many."""
    tested: list[tuple[float, tuple[str, str, str]]] = []  # p; method, measure and data
    for name, here in found.items():
        for point in (point for point in POINTS if point in here):
            for measure in SHOWN["figure"]:
                each = here[point][measure]
                if each.half_width < float("inf"):
                    t = stats.t.ppf(0.975, each.count - 1) * abs(each.mean) / each.half_width
                    of_known = measure == "found" and name.startswith("planted")
                    measured = COLUMNS[measure].split(", or ")[of_known].split(",")[0]
                    moves = f"{'higher' if each.mean > 0 else 'lower'} {measured}"
                    p_value = 2 * stats.t.sf(t, each.count - 1)
                    tested.append((p_value, (label(*point), moves, name)))
    tested.sort()
    p = np.array([each for each, _ in tested])
    n_holm = int((np.maximum.accumulate(p * np.arange(len(p), 0, -1)) < 0.05).sum())
    of_c2r: dict[str, list[str]] = {}
    for method, measure, name in (place for _, place in tested[:n_holm]):
        if method == label(*POINTS[0]):
            of_c2r.setdefault(measure, []).append(name)
    told = "; ".join(f"{measure} ({'; '.join(names)})" for measure, names in of_c2r.items())
    return (
        f"Of the {len(p)} differences in Figure 1, {(p < 0.05).sum()} have p < 0.05 by "
        f"themselves, {(stats.false_discovery_control(p) < 0.05).sum()} after correction by "
        f"Benjamini and Hochberg, and {n_holm} by Holm. Of these, C2R 5's are: {told}."
    )


def rule_table() -> str:
    """Return where curves over lambda turn by each rule, and how far apart, in decades."""
    kinds = by_data(curves_of(rows_kept("transfer")))
    places = [(point, data) for point in transfer.POINTS for data in ("hierarchy", "minilm")]
    table = []
    for rule in kinds["minilm"][0].multipliers:
        found = [turns(kinds[data], rule, point) for point, data in places]
        cells = (f"{float(f'{10 ** at.mean():.2g}'):g} ({at.std():.2f})" for at in found)
        table.append([rule, *cells])
    head = (f"{transfer.POINTS[point]}, {data}" for point, data in places)
    return markdown_table(["λ by", *head], table)


def finetuning_table() -> str:
    """Return what fine-tuning comes to on known features."""
    rows = rows_kept("finetuning")
    names = ["composition", "explained_variance", "absorption", "dead_latents"]
    means = rows.groupby("method", sort=False)[names].mean()
    lines = [[way, *map("{:.3f}".format, here)] for way, here in means.T.items()]
    return markdown_table(["", *(name.replace("_", " ") for name in names)], lines)


def smollm2_table() -> str:
    """Return differences from BatchTopK on the language model, below its own values."""
    rows = rows_of(*DATA["language model, k = 32"])
    means = rows[rows.method == PLAIN].mean(numeric_only=True)
    columns: dict[str, str] = SHOWN["smollm2"]
    of_plain = [f"{means[name.replace('percent', 'unexplained')]:.3f}" for name in columns]
    chance = [f"{means.chance_composition:.3f}", *[""] * (len(columns) - 1)]
    found = {label(*point): each for point, each in from_plain(rows).items()}
    body = [
        [name, *(cell(found[name], each) + " %" * (each == "percent") for each in columns)]
        for name in SHOWN["smollm2_methods"]
    ]
    return markdown_table(
        ["", *columns.values()], [[PLAIN, *of_plain], *body, ["chance", *chance]]
    )


def figures() -> dict[str, Figure]:
    """Return the figures of the page of evidence, by their files."""
    data = {name: rows_of(*where) for name, where in DATA.items()}
    synth, of_synth = data["SynthSAEBench"], {"found": "F1", "mcc": "MCC"}
    of_planted = {"absorption": "absorption", "found": "features found"}
    found = {name: from_plain(rows) for name, rows in data.items()}
    few = {name: found[name] for name in SHOWN["readme_rows"]}
    return {
        "evidence": forest(found, SHOWN["figure"], POINTS, lines=2),
        "evidence-short": forest(few, SHOWN["readme_figure"], SHORT_POINTS, lines=1),
        "evidence-synth": over_unexplained(synth[synth.k == 8], of_synth),
        "evidence-planted": over_unexplained(data["planted, 2M tokens"], of_planted),
        "evidence-hierarchies": hierarchies(),
    }


def tables() -> dict[str, str]:
    """Return the tables by their marks."""
    data = {name: rows_of(*where) for name, where in DATA.items()}
    found = {name: from_plain(rows) for name, rows in data.items()}
    synth = data["SynthSAEBench"]
    synth = synth[synth.k == 8]
    at_equal_l0 = Contrast("JumpReLU", PLAIN, ["the l0 of BatchTopK", 0])
    by_point = from_plain(synth)
    of_synth = {
        **{(label(*point),): by_point[point] for point in SHORT_POINTS},
        ("JumpReLU",): differences(synth, at_equal_l0),
    }
    at_equal_cost = Contrast("C2R", "OrtSAE", [5.0, "the explained_variance of C2R 5"])
    equal = {(name,): differences(rows, at_equal_cost) for name, rows in data.items()}
    equal = {name: each for name, each in equal.items() if cell(each, "found")}
    letters = by_k(*(rows for name, rows in data.items() if name.startswith("language model")))
    return {
        "corrected": corrected(found),
        "letters": table(by_method(letters), ["k", "method"]),
        "synth": table(of_synth, ["method"], "composition", "dead_latents"),
        "equal cost": table(equal, ["data"], *SHOWN["not_at_equal_cost"], columns=ALL_COLUMNS),
        "hierarchies": hierarchies_told(),
        "apart": apart_table(),
        "rule": rule_table(),
        "smollm2": smollm2_table(),
        "known features": finetuning_table(),
        "differences": table(
            by_method(found), ["data", "minus BatchTopK"], "above_chance", columns=ALL_COLUMNS
        ),
    }


def main() -> None:
    """Draw the figures, and fill the marked places."""
    for name, figure in figures().items():
        (DOCS / f"{name}.svg").write_text(svg(figure), encoding="utf-8")
    shown = tables()
    for page in PAGES:
        page.write_text(fill(page.read_text(encoding="utf-8"), shown), encoding="utf-8")


if __name__ == "__main__":
    main()
