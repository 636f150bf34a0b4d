"""What was evaluated, in the paper's columns."""

from collections.abc import Iterator

from rich.table import Table

from sae_lens_c2r.evaluation.catalog import COLUMNS, Column
from sae_lens_c2r.evaluation.gathered import Gathered
from sae_lens_c2r.reporting import tables

NOTE = (
    "Composition: mean, over the latents, of the highest cosine with another latent's decoder "
    "row. Co-firing: the same of the Jaccard of their firing, over the latents that fire. "
    "Absorption: mean absorption fraction. SCR and TPP: with 20 latents. Blank: not "
    "measured."
)


def rows(gathered: Gathered) -> Iterator[tuple[str, list[str]]]:
    """The rows of the table.

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
        A renderable, without the columns that no SAE has a number in.
    """
    lines = list(rows(gathered))
    shown = [n for n in range(len(COLUMNS)) if any(cells[n] for _, cells in lines)]
    headings = ["SAE", *(f"{COLUMNS[n].heading}\n{_arrow(COLUMNS[n])}" for n in shown)]
    cells = ([name, *(cells[n] for n in shown)] for name, cells in lines)
    return tables.terminal_table(headings, cells, note=NOTE)


def markdown_table(gathered: Gathered) -> str:
    """The table in Markdown.

    Args:
        gathered: What `evaluation.json` holds.

    Returns:
        The table, with the note under it.
    """
    headings = ["SAE", *(f"{column.title} {_arrow(column)}" for column in COLUMNS)]
    cells = ([name.replace("|", "\\|"), *cells] for name, cells in rows(gathered))
    return f"{tables.markdown_table(headings, cells)}\n\n{NOTE}\n"


def _arrow(column: Column) -> str:
    return "↑" if column.better > 0 else "↓"
