"""The demo's table, in the terminal and in a self-contained `report.html`."""

from dataclasses import dataclass

from rich.table import Table

from sae_lens_c2r.demo.contexts import PairInContext
from sae_lens_c2r.demo.evaluation import Metrics
from sae_lens_c2r.demo.settings import HOOK_NAME, PLAIN, REGULARIZED
from sae_lens_c2r.reporting import tables
from sae_lens_c2r.reporting.html import render

HEADINGS = [
    "explained\nvariance",
    "L0",
    "composition",
    "pairs\n> 0.9",
    "pairs\n> 0.7",
    "dead\nlatents",
    "tokens/s",
]


@dataclass(frozen=True)
class MetricsTable:
    """The demo's table, its cells as text."""

    headings: list[str]
    rows: list[tuple[str, list[str]]]
    note: str


def metrics_table(metrics: dict[str, Metrics]) -> MetricsTable:
    """Format the metrics, for the terminal and the report alike.

    Args:
        metrics: For each SAE, what was measured of it.

    Returns:
        The table.
    """
    chance = next(iter(metrics.values())).chance_composition
    return MetricsTable(
        HEADINGS,
        [(name, _cells(row)) for name, row in metrics.items()],
        "Composition: mean maximum decoder cosine. Its chance level at this size is "
        f"{chance:.3f}; below that, lower is not better. Pairs: of latents with a cosine above "
        "0.9 and 0.7. Tokens/s: of the SAE's own training steps.",
    )


def _cells(metrics: Metrics) -> list[str]:
    return [
        f"{metrics.explained_variance:.3f}",
        f"{metrics.l0:.1f}",
        f"{metrics.composition:.3f}",
        f"{metrics.pairs_above_0_9:,}",
        f"{metrics.pairs_above_0_7:,}",
        f"{metrics.dead_latents:,}",
        f"{metrics.tokens_per_second:,.0f}",
    ]


def terminal_table(table: MetricsTable) -> Table:
    """The table for `rich` to print.

    Args:
        table: The formatted metrics.

    Returns:
        A renderable.
    """
    rows = [[name, *cells] for name, cells in table.rows]
    return tables.terminal_table(
        ["SAE", *table.headings], rows, title="Measured on held-out text", note=table.note
    )


def report_html(
    table: MetricsTable,
    *,
    histogram: str,
    curves: str,
    pairs: list[PairInContext],
    folder: str,
    provenance: str,
) -> str:
    """Render the report. It loads nothing from anywhere.

    Args:
        table: The formatted metrics.
        histogram: SVG of the distributions of maximum cosine.
        curves: SVG of the training curves.
        pairs: The redundant pairs to show.
        folder: The folder of the C2R SAE.
        provenance: What made the report.

    Returns:
        An HTML document.
    """
    return render(
        "sae_lens_c2r.demo",
        table=table,
        histogram=histogram,
        curves=curves,
        pairs=pairs,
        folder=folder,
        provenance=provenance,
        hook_name=HOOK_NAME,
        plain_name=PLAIN,
        regularized_name=REGULARIZED,
    )
