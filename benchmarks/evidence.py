"""The pages' figures and tables, from the rows that all worlds keep.

`python -m benchmarks.evidence` draws the figures of `docs/evidence.md`, fills its tables and
those of two more pages, and writes the numbers of its first figure to `results/evidence.md`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from benchmarks.compare import EQUALS, Interval, at_equal, at_strength, label
from benchmarks.experiment import CHOICE_SEED, METHODS, PLAIN, read
from benchmarks.show import fill, lines_figure
from benchmarks.worlds.transfer import POINTS as TURNS
from benchmarks.worlds.transfer import by_data, curves_of
from sae_lens_c2r.reporting.figures import svg
from sae_lens_c2r.reporting.tables import markdown_table

DOCS, RESULTS = Path("docs"), Path("benchmarks/results")
DATA = {  # data sets, by the rows of a world at a training length
    "SynthSAEBench": ("synth_sae_bench/2k", 4_000_000),
    "SynthSAEBench, twice the size": ("synth_sae_bench/4k", 5_000_000),
    "more latents than features": ("four_worlds/more latents than features", 512_000),
    "fewer latents than features": ("four_worlds/fewer latents than features", 512_000),
    "hardly any superposition": ("four_worlds/hardly any superposition", 512_000),
    "a latent for each feature": ("four_worlds/a latent for each feature", 512_000),
    "planted, 1M tokens": ("planted/minilm", 1_000_000),
    "planted, 2M tokens": ("planted/minilm", 2_000_000),
    "MiniLM": ("minilm_text/minilm-text", 1_600_000),
    "MiniLM, other schedule": ("minilm_text/minilm-text-other-schedule", 1_600_000),
}
POINTS = {("C2R", 5.0): "C0", ("OrtSAE", 0.25): "C1", ("Matryoshka", 0.0): "C2"}
FOUND, PERCENT = "F1, or features found", "unexplained variance, %"
COLUMNS = {  # what is shown, by the measures of rows
    PERCENT: "unexplained",
    FOUND: "found",
    "MCC": "mcc",
    "absorption": "absorption",
    "co-firing": "highest_jaccard",
    "dead latents": "dead_latents",
    "composition": "composition",
}
FIVE = [name for name in COLUMNS if name not in ("MCC", "composition")]
SMALLEST = {**dict.fromkeys(COLUMNS, 0.01), "lost": 0.005, PERCENT: 2.5}
SMALLEST["composition"] = float("inf")  # below the level of chance, lower is not better
FARTHEST = 40  # percent of the unexplained variance that the figure shows
NARROW = "\N{NARROW NO-BREAK SPACE}"
Differences = Mapping[str, Interval]
Point = tuple[str, float]  # a method at a strength


def rows_of(world: str, samples: int) -> pd.DataFrame:
    """Return the rows of a data set, with `unexplained` variance, and with what is `found`."""
    kept = pd.DataFrame(read(RESULTS / world.partition("/")[0] / "runs.jsonl"))
    rows = kept[(kept.world == world) & (kept.samples == samples) & (kept.seed != CHOICE_SEED)]
    rows = rows.assign(unexplained=1 - rows.explained_variance)
    found = "f1" if "f1" in rows else "features_found"
    return rows.assign(found=rows[found] if found in rows else float("nan"))


def less(first: pd.DataFrame, second: pd.DataFrame) -> Differences:
    """Return what one method has less another, over seeds; of the unexplained, in percent."""
    ours, theirs = first.align(second, join="inner", axis=0)
    ours, theirs = (each.groupby("seed").mean() for each in (ours, theirs))
    found = ours - theirs
    lost = Interval.of(found["unexplained"])
    found["unexplained"] *= 100 / theirs["unexplained"]
    found = found if len(found) > 2 else found * float("nan")  # of two seeds none is told
    return {"lost": lost} | {name: Interval.of(found[of]) for name, of in COLUMNS.items()}


def measured(rows: pd.DataFrame, method: str, strength: float) -> pd.DataFrame:
    """Return the measures of a method at a strength, NaN where a data set has none."""
    there = rows.reindex(columns=[*rows, *set(COLUMNS.values()) - set(rows)])
    return at_strength(there, method, strength, list(COLUMNS.values())).astype(float)


def against_plain(rows: pd.DataFrame, method: str, strength: float) -> Differences | None:
    """Return a method less BatchTopK, or `None` if it was not trained there."""
    ours = measured(rows, method, strength)
    return less(ours, measured(rows, PLAIN, 0)) if len(ours) else None


def at_equal_cost(rows: pd.DataFrame) -> Differences:
    """Return C2R 5 less OrtSAE, at the strength that explains as much of the variance."""
    there = rows.reindex(columns=[*rows, *set(COLUMNS.values()) - set(rows)])
    equal = EQUALS["the explained_variance of C2R 5"]
    other = at_equal(there, "OrtSAE", equal, list(COLUMNS.values())).dropna(how="all")
    return less(measured(rows, "C2R", 5.0), other.astype(float))


def cell(differences: Differences, column: str) -> str:
    """Return a difference for a table, bold where it is told from 0 and of interest."""
    found, judged = differences[column], differences["lost" if column == PERCENT else column]
    if not found.half_width < float("inf"):
        return ""
    digits = 1 if column == PERCENT else 3
    text = f"{found.mean:+.{digits}f} ± {found.half_width:.{digits}f}"
    text = re.sub(r"\b0(?=\.\d{3})", "", text).replace(" ", NARROW)
    smallest = SMALLEST["lost" if column == PERCENT else column]
    return f"**{text}**" if abs(judged.mean) > max(judged.half_width, smallest) else text


def table(lines: Mapping[Any, Differences], *head: str, without: Sequence[str] = ()) -> str:
    """Return a table of differences: a line for each tuple, a column for what any has."""
    known = (name for name in COLUMNS if any(cell(each, name) for each in lines.values()))
    columns = [name for name in known if name not in without]
    body = [[*about, *(cell(each, n) for n in columns)] for about, each in lines.items()]
    return markdown_table([*head, *columns], body)


def forest(found: Mapping[str, Mapping[Point, Differences]]) -> Figure:
    """Draw the differences from BatchTopK: a row for each data set, a panel for a measure."""
    figure = Figure(figsize=(7.4, 7.6), layout="constrained")
    grid = figure.subplots(2, 3, sharey=True)
    for panel, column in zip(grid.flat, FIVE, strict=False):
        panel.axvspan(-SMALLEST[column], SMALLEST[column], color="0.9")
        panel.axvline(0, color="0.4", linewidth=0.8)
        for offset, (point, color) in enumerate(POINTS.items()):
            shown = [
                (row + 0.25 * (offset - 1), here[point][column])
                for row, here in enumerate(found.values())
                if point in here and here[point][column].half_width < float("inf")
            ]
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
            for row, each in shown if column == PERCENT else ():
                if each.mean > FARTHEST:
                    panel.plot(FARTHEST, row, ">", color=color, markersize=5, clip_on=False)
        panel.set_title(column, fontsize=10)
        panel.set_xlabel("higher is better" if column == FOUND else "lower is better")
        panel.locator_params(axis="x", nbins=5)
        panel.grid(axis="y", color="0.93")
    grid[0, 0].set_xlim(-30, FARTHEST)
    grid[0, 0].set_yticks(range(len(found)), list(found))
    grid[0, 0].invert_yaxis()
    grid[1, 2].axis("off")
    grid[1, 2].legend(*grid[0, 0].get_legend_handles_labels(), loc="center", frameon=False)
    return figure


def curves(rows: pd.DataFrame, ys: Mapping[str, str]) -> Figure:
    """Draw what methods bring over what they leave unexplained, a panel for each measure."""
    points = []
    for method in ("C2R", "OrtSAE", "Matryoshka", "JumpReLU", PLAIN):
        line = rows[(rows.method == method)]
        start = rows[(rows.method == PLAIN) & (method in {"C2R", "OrtSAE"})]
        of = pd.concat([start, line]).sort_values("strength")
        about = {"row": "", "line": method, "point": of.strength, "x": of.unexplained}
        points += [
            pd.DataFrame({**about, "column": name, "y": of[y]}) for name, y in ys.items()
        ]
    return lines_figure(pd.concat(points), "unexplained variance")


def hierarchies() -> Figure:
    """Draw absorption with C2R over absorption without it, a point for each hierarchy."""
    rows = pd.DataFrame(read(RESULTS / "transfer" / "runs.jsonl"))
    ours = rows[(rows.method == "C2R") & rows.world.str.contains("hierarchy")]
    found = ours.groupby(["world", "batch_size", "strength"]).absorption.mean().unstack()
    figure = Figure(figsize=(4.6, 4.2), layout="constrained")
    panel = figure.subplots()
    panel.plot([0, 0.19], [0, 0.19], color="0.5", linewidth=0.8)
    panel.plot(found[0.0], found[5.0], "o", color="C0", markersize=5)
    panel.set(xlabel="absorption of BatchTopK", ylabel="absorption with C2R 5")
    return figure


def p_values(found: Differences, seeds: int) -> list[float]:
    """Return the p values of a figure's differences over so many seeds, by Student's t."""
    known = [found[name] for name in FIVE if found[name].half_width < float("inf")]
    critical = stats.t.ppf(0.975, seeds - 1)
    t = [critical * abs(each.mean) / each.half_width for each in known]
    return list(2 * stats.t.sf(t, seeds - 1))


def corrected(p: Sequence[float]) -> str:
    """Return how many differences are told from 0, by themselves and among so many."""
    count, ascending = len(p), np.sort(p)
    holm = np.maximum.accumulate(ascending * np.arange(count, 0, -1)) < 0.05
    return (
        f"Of the {count} differences in Figure 1, {(ascending < 0.05).sum()} have p < 0.05 by "
        f"themselves, {(stats.false_discovery_control(p) < 0.05).sum()} after correction by "
        f"Benjamini and Hochberg, and {holm.sum()} after correction by Holm."
    )


def rule_table() -> str:
    """Return where curves over lambda turn by each rule, and how far apart, in decades."""
    kinds = by_data(curves_of(pd.DataFrame(read(RESULTS / "transfer" / "runs.jsonl")), "relu"))
    places = [(point, data) for point in TURNS for data in ("hierarchy", "minilm")]
    table = []
    for rule in kinds["minilm"][0].multipliers:
        cells = []
        for point, data in places:
            found = [each.literal_at(point) / each.multipliers[rule] for each in kinds[data]]
            logs = np.log10(found)
            middle = float(f"{10 ** np.nanmean(logs):.2g}")
            cells.append(f"{middle:g} ({np.nanstd(logs, ddof=1):.2f})")
        table.append([rule, *cells])
    head = (f"{TURNS[point]}, {data}" for point, data in places)
    return markdown_table(["λ by", *head], table)


def finetuning_table() -> str:
    """Return what fine-tuning comes to on known features."""
    rows = pd.DataFrame(read(RESULTS / "finetuning" / "runs.jsonl"))
    rows = rows[rows.world.str.endswith("known features")]
    columns = {
        "composition": "composition",
        "explained variance": "explained_variance",
        "absorption": "absorption",
        "dead latents": "dead_latents",
    }
    lines = [
        [name, *(f"{here[of].mean():.3f}" for of in columns.values())]
        for name, here in rows.groupby("method", sort=False)
    ]
    return markdown_table(["", *columns], lines)


def differences(data: Mapping[str, pd.DataFrame]) -> dict[str, dict[Point, Differences]]:
    """Return every data set's differences from BatchTopK."""
    points = [*POINTS, ("C2R", 2.0), ("C2R", 20.0), ("OrtSAE", 1.0)]
    found = {
        name: {at: against_plain(rows, *at) for at in points} for name, rows in data.items()
    }
    return {
        name: {point: each for point, each in here.items() if each is not None}
        for name, here in found.items()
    }


def figures() -> dict[str, Figure]:
    """Return the figures of the page of evidence, by their files."""
    data = {name: rows_of(*where) for name, where in DATA.items()}
    synth, planted = data["SynthSAEBench"], data["planted, 2M tokens"]
    of_planted = {"absorption": "absorption", "features found": "found"}
    return {
        "evidence": forest(differences(data)),
        "evidence-synth": curves(synth[synth.k == 8], {"F1": "found", "MCC": "mcc"}),
        "evidence-planted": curves(planted, of_planted),
        "evidence-hierarchies": hierarchies(),
    }


def places() -> dict[Path, dict[str, str]]:
    """Return the tables of marked places, by page and mark."""
    data = {name: rows_of(*where) for name, where in DATA.items()}
    found, synth = differences(data), data["SynthSAEBench"]
    synth = synth[synth.k == 8]
    methods = [*POINTS, ("C2R", 2.0), ("C2R", 20.0), ("OrtSAE", 1.0), ("JumpReLU", 1.4)]
    p = [
        value
        for name, here in found.items()
        for point in POINTS
        if point in here
        for value in p_values(here[point], data[name].seed.nunique())
    ]
    of_synth = {
        (label(*point),): each
        for point in sorted(
            methods, key=lambda point: (list(METHODS).index(point[0]), point[1])
        )
        if (each := against_plain(synth, *point))
    }
    strengths = {
        (name, f"{strength:g}"): here["C2R", strength]
        for name, here in found.items()
        for strength in (2.0, 5.0, 20.0)
        if {("C2R", 2.0), ("C2R", 20.0)} <= set(here)
    }
    equal = {(name,): at_equal_cost(rows) for name, rows in data.items()}
    equal = {name: each for name, each in equal.items() if cell(each, FOUND)}
    everything = {
        (name, label(*point)): each for name in found for point, each in found[name].items()
    }
    return {
        DOCS / "evidence.md": {
            "corrected": corrected(p),
            "synth": table(of_synth, "method", without=["composition"]),
            "equal cost": table(equal, "data", without=[PERCENT, "composition"]),
            "strengths": table(strengths, "data", "λ", without=["MCC", "composition"]),
        },
        DOCS / "how-lambda-transfers.md": {"rule": rule_table()},
        DOCS / "finetune.md": {"known features": finetuning_table()},
        RESULTS / "evidence.md": {"differences": table(everything, "data", "less BatchTopK")},
    }


def main() -> None:
    """Draw the figures, and fill the marked places."""
    for name, figure in figures().items():
        (DOCS / f"{name}.svg").write_text(svg(figure), encoding="utf-8")
    for page, tables in places().items():
        page.write_text(fill(page.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
