"""Tables, for a terminal and in Markdown. The first column names what a row is about."""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

# A line for each measure: the words that all tables, reports and cards share.
GLOSSARY = {
    "composition": "mean, over the latents, of the highest cosine with another latent's "
    "decoder row; random directions have the chance level, and lower than that is no better",
    "pairs": "pairs of latents with a cosine above the number",
    "cosine with before": "cosine of each latent's decoder row with its row before training: "
    "median and first percentile",
    "L0": "latents that fire on a token, on average",
    "dead latents": "fire on no token of the text",
    "live composition": "composition of the latents that fire, among themselves",
    "co-firing": "mean, over the latents that fire, of the highest Jaccard with another; "
    "latents that fire independently have the chance level. Jaccard of two latents: of the "
    "tokens on which either fires, the share on which both do",
    "Jaccard pairs": "pairs of latents with a Jaccard above the number. Composition can "
    "fall while these pairs stay",
    "absorption pairs": "a general latent and a more specific latent that fires in its place",
    "Eq. (13)": "share of absorption pairs in which the penalty counteracts absorption; A / B: "
    "ratio of the energies that decide it",
    "explained variance": "as SAELens computes it, or else SAEBench's core",
    "features present": "features in a sample, on average",
    "share dead": "share of the latents that fire on no sample",
    "MCC": "mean absolute cosine of features and latents, matched one to one",
    "uniqueness": "number of features that are nearest to some latent, divided by the latents",
    "F1": "like precision and recall, rates latents as detectors of features",
    "absorption by children": "how much more often a parent's latent is silent beside a child "
    "than without, over the parents found, which have a latent of their own",
    "absorption": "mean absorption fraction",
    "F1 of probes": "mean F1 of the probes of first letters, on which absorption rests",
    "SCR": "with 20 latents",
    "TPP": "with 20 latents",
}
_BETWEEN, _EDGES = 2, 1  # signs between two columns, and at a table's edges


def explained(*terms: str) -> str:
    """The lines of the glossary on some terms, each once, as a table's note."""
    lines = (f"{term[0].upper()}{term[1:]}: {GLOSSARY[term]}." for term in dict.fromkeys(terms))
    return " ".join(lines)


def terminal_tables(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: float = math.inf,
    text: Collection[int] = (0,),
    broken: int = 0,
    note: str | None = None,
) -> list[Table]:
    """A table for `rich`, without markup, in parts as wide as `width`, each with the names."""
    needed = [
        max(len(line) for cell in column for line in cell.split("\n")) + _BETWEEN
        for column in zip(headings, *rows, strict=True)
    ]
    parts = [[0]]
    for number in range(1, len(headings)):
        part = parts[-1]
        if len(part) > 1 and sum(needed[n] for n in (*part, number)) + _EDGES > width:
            parts.append([0])
        parts[-1].append(number)
    tables = []
    for part in parts:
        table = Table(
            caption=note if part is parts[-1] else None,
            caption_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, 1, 0, 0),  # fits a terminal of 80 columns
        )
        for number in part:
            justify: Literal["left", "right"] = "left" if number in text else "right"
            if number == broken:  # no other column is
                table.add_column(headings[number], justify=justify, overflow="fold")
            else:
                table.add_column(headings[number], justify=justify, no_wrap=True)
        for cells in rows:
            table.add_row(*(Text(cells[number]) for number in part))
        tables.append(table)
    return tables


def markdown_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, text: Collection[int] = (0,)
) -> str:
    """A table in Markdown; the columns but those of `text` are aligned as numbers."""
    ruler = ["---" if number in text else "--:" for number in range(len(headings))]
    return "\n".join(f"| {' | '.join(line)} |" for line in [headings, ruler, *rows])
