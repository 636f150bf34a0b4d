"""What was evaluated, in columns of what was measured."""

from rich.table import Table

from sae_lens_c2r.evaluation.catalog import COLUMNS
from sae_lens_c2r.evaluation.report import EvaluatedSAE, EvaluationReport
from sae_lens_c2r.reporting import tables

_NOTES = {  # of columns that need one
    "explained variance": "Explained variance and L0: as SAELens computes them, or else "
    "SAEBench's core.",
    "composition": "Composition: mean, over the latents, of the highest cosine with another "
    "latent's decoder row; chance level: what that is for random directions.",
    "co-firing": "Co-firing: mean, over the latents that fire, of the highest Jaccard of "
    "their firing with another one's.",
    "features present": "Features: that are present, on average; dead: share of the latents.",
    "MCC": "MCC: mean cosine of features and latents, matched one to one; unique: features "
    "that some latent is the nearest to, by latents; precision, recall and F1: of latents as "
    "detectors of these.",
    "absorption by children": "Absorption: how much more often a parent's latent is silent "
    "beside a child than without, of the parents that were found, which have a latent of "
    "their own.",
    "absorption": "Absorption: mean absorption fraction.",
    "SCR": "SCR: with 20 latents.",
    "TPP": "TPP: with 20 latents.",
}


def rows(gathered: EvaluationReport) -> list[tuple[str, dict[str, str]]]:
    """The rows of the table.

    Returns:
        An SAE's name and its cells, by the titles of their columns.
    """
    names = [sae.name for sae in gathered.saes]
    lines = []
    for sae in gathered.saes:
        alone = names.count(sae.name) == 1
        name = sae.name if alone else f"{sae.name} ({sae.weights_sha256[:8]})"
        lines.append((name, _cells(sae)))
    return lines


def _cells(sae: EvaluatedSAE) -> dict[str, str]:
    cells: dict[str, str] = {}
    for column in COLUMNS:
        found = sae.evaluations.get(column.evaluation)
        value = found.metrics.get(column.metric) if found else None
        if value is not None:
            cells.setdefault(column.title, format(value, column.shown))
    return cells


def terminal_tables(gathered: EvaluationReport, *, width: int = 80) -> list[Table]:
    """The table for `rich` to print.

    Args:
        gathered: What `evaluation.json` holds.
        width: Of the terminal. What has no room beside the names is in further tables.

    Returns:
        Renderables, with the columns that any SAE has a number in.
    """
    lines = rows(gathered)
    titles = _measured(lines)
    headings = {column.title: f"{column.heading}\n{column.arrow.strip()}" for column in COLUMNS}
    return tables.fitting_tables(
        ["SAE", *(headings[title].rstrip() for title in titles)],
        [[name, *(cells.get(title, "") for title in titles)] for name, cells in lines],
        width=width,
        note=_note(titles),
    )


def markdown_table(gathered: EvaluationReport) -> str:
    """The table in Markdown.

    Args:
        gathered: What `evaluation.json` holds.

    Returns:
        The table, with the note under it.
    """
    lines = rows(gathered)
    titles = _measured(lines)
    arrows = {column.title: column.arrow for column in COLUMNS}
    cells = (
        [name.replace("|", "\\|"), *(cells.get(title, "") for title in titles)]
        for name, cells in lines
    )
    headings = ["SAE", *(f"{title}{arrows[title]}" for title in titles)]
    return f"{tables.markdown_table(headings, cells)}\n\n{_note(titles)}\n"


def _measured(lines: list[tuple[str, dict[str, str]]]) -> list[str]:
    """The titles of the columns that have a number in them, in order."""
    titles = dict.fromkeys(column.title for column in COLUMNS)
    return [title for title in titles if any(title in cells for _, cells in lines)]


def _note(titles: list[str]) -> str:
    return " ".join(note for title, note in _NOTES.items() if title in titles)
