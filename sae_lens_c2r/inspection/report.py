"""The measures of SAEs as tables in the terminal, and as a self-contained `report.html`."""

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.table import Table
from rich.text import Text

from sae_lens_c2r._support.libraries import versions
from sae_lens_c2r.analysis.metrics import METRICS
from sae_lens_c2r.inspection import contexts
from sae_lens_c2r.inspection.comparison import Comparison
from sae_lens_c2r.inspection.measures import SAEReport, max_cosine_counts
from sae_lens_c2r.reporting.figures import COLORS, color_of, max_cosine_figure, svg
from sae_lens_c2r.reporting.tables import MetricTable, metric_table

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
)


_TABLES = {  # the metrics of each, by what stands above the names
    "": (
        *("architecture", "d_sae", "d_in", "composition"),
        *("encoder_composition", "chance_composition"),
        *("pairs_above_0.9", "pairs_above_0.7"),
    ),
    "on text": (
        *("explained_variance", "l0", "dead_latents"),
        *("composition_of_live", "chance_of_live"),
    ),
    "firing together": [key for key in METRICS if key.startswith("co_firing")],
    "absorption": ("absorption_pairs", "eq_13_holds", "median_A_by_B"),
}


def tables_of(reports: Sequence[SAEReport]) -> dict[str, MetricTable]:
    """The tables by their titles, with the SAEs that have any of their metrics."""
    tables = {}
    for title, keys in _TABLES.items():
        saes = [(report.name, report.metrics()) for report in reports]
        measured = [(name, each) for name, each in saes if not each.keys().isdisjoint(keys)]
        if measured:
            tables[title] = metric_table(measured, keys, blank="-")
    return tables


def in_terminal(
    reports: Sequence[SAEReport], comparisons: Sequence[Comparison] = (), *, width: int = 80
) -> list[Table | Text]:
    """Return what `rich` is to print: tables as wide as the terminal, and sentences."""
    shown: list[Table | Text] = []
    for table in tables_of(reports).values():
        shown += table.in_terminal(width=width)
    read = {each.on_text.tokens: None for each in reports if each.on_text}  # once each
    shown += [Text(f"Measured on {tokens}.") for tokens in read]
    named = [f"{each.name} is {each.source}." for each in reports if each.name != each.source]
    shown += map(Text, named)
    return [*shown, *(Text(each.sentences()) for each in comparisons)]


def report_html(
    reports: Sequence[SAEReport], comparisons: Sequence[Comparison] = (), *, made_by: str
) -> str:
    """The report of what a command has measured."""
    on_text = [report for report in reports if report.on_text]
    counts = [
        (each.name, color_of(number), max_cosine_counts(each.numbers) or [])
        for number, each in enumerate(reports)
    ]
    chance = [each.numbers["chance_composition"] for each in reports]
    return _TEMPLATES.get_template("report.html").render(
        colors=COLORS,
        number_of={each.name: n % len(COLORS) for n, each in enumerate(reports)},
        tables=tables_of(reports),
        cosines=svg(max_cosine_figure(counts, chance)),
        reports=reports,
        on_text=on_text,
        comparisons=comparisons,
        contexts=contexts,
        versions=", ".join(f"{package} {number}" for package, number in versions().items()),
        made_by=made_by,
    )
