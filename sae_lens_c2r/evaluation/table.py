"""What was evaluated, in the paper's columns."""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from sae_lens_c2r.evaluation.catalog import COLUMNS, Column
from sae_lens_c2r.evaluation.gathered import Gathered

NOTE = (
    "Composition: mean, over the latents, of the highest cosine with another latent's decoder "
    "row. Absorption: mean absorption fraction. SCR and TPP: with 20 latents. Blank: not "
    "measured."
)


def rows(gathered: Gathered) -> Iterator[tuple[str, list[str]]]:
    """The rows of the table.

    Args:
        gathered: What `evaluation.json` holds.

    Yields:
        An SAE's name and its cells, those that were not evaluated blank.
    """
    names = [sae.name for sae in gathered.saes]
    for sae in gathered.saes:
        cells = []
        for column in COLUMNS:
            found = sae.evaluations.get(column.evaluation)
            value = found.metrics.get(column.metric) if found else None
            cells.append("" if value is None else f"{value:.3f}")
        alone = names.count(sae.name) == 1
        yield sae.name if alone else f"{sae.name} ({sae.weights_sha256[:8]})", cells


def terminal_table(gathered: Gathered) -> Table:
    """The table for `rich` to print.

    Args:
        gathered: What `evaluation.json` holds.

    Returns:
        A renderable.
    """
    table = Table(
        caption=NOTE,
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("SAE", overflow="fold")
    for column in COLUMNS:
        heading = f"{column.heading}\n{_arrow(column)}"
        table.add_column(heading, justify="right", no_wrap=True)
    for name, cells in rows(gathered):
        table.add_row(escape(name), *cells)
    return table


def markdown_table(gathered: Gathered) -> str:
    """The table in Markdown.

    Args:
        gathered: What `evaluation.json` holds.

    Returns:
        The table, with the note under it.
    """
    head = ["SAE", *(f"{column.title} {_arrow(column)}" for column in COLUMNS)]
    ruler = ["---", *["---:"] * len(COLUMNS)]
    lines = [
        head,
        ruler,
        *([name.replace("|", "\\|"), *cells] for name, cells in rows(gathered)),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{NOTE}\n"


def _arrow(column: Column) -> str:
    return "↑" if column.better > 0 else "↓"
