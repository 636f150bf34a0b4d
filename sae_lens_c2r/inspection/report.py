"""What was found of SAEs, as a table in the terminal and as a self-contained `report.html`."""

from importlib.metadata import version

from rich.table import Table

from sae_lens_c2r.inspection.behavior import Behavior
from sae_lens_c2r.inspection.measures import THRESHOLDS
from sae_lens_c2r.inspection.plots import (
    consolidation,
    cosine_distributions,
    firing_frequencies,
)
from sae_lens_c2r.inspection.run import Finding
from sae_lens_c2r.reporting.html import render
from sae_lens_c2r.reporting.tables import terminal_table

HEADINGS = [
    "form",
    "d_sae",
    "d_in",
    "composition",
    "chance\nlevel",
    *(f"pairs\n> {threshold}" for threshold in THRESHOLDS),
]
NOTE = (
    "Composition: mean, over the latents, of the highest cosine with another latent's decoder "
    "row. Chance level: what that is for random directions; below it, lower is not better. "
    "Pairs: of latents with a cosine above the number."
)
METADATA = ("model_name", "hook_name", "dataset_path", "context_size", "l0")


HEADINGS_ON_TEXT = [
    "explained\nvariance",
    "L0",
    "dead\nlatents",
    "absorption\npairs",
    "Eq. (13)\nholds",
    "median\nA / B",
]
NOTE_ON_TEXT = (
    "Dead latents fire on no token of the text. Absorption pairs: of a general latent and a "
    "more specific one that fires in its place. Eq. (13): the share of them for which the "
    "penalty works against that; A / B: the energies that it depends on."
)


def cells_of_weights(finding: Finding) -> list[str]:
    """A row of the first table, without its name."""
    inspection = finding.inspection
    return [
        inspection.architecture,
        f"{inspection.d_sae:,}",
        f"{inspection.d_in:,}",
        f"{inspection.composition:.3f}",
        f"{inspection.chance_composition:.3f}",
        *(f"{count:,}" for count in inspection.pairs),
    ]


def cells_on_text(behavior: Behavior) -> list[str]:
    """A row of the second table, without its name."""
    pairs = behavior.absorption
    share = f"{pairs.satisfied.double().mean().item():.3f}" if len(pairs) else "-"
    ratio = f"{(pairs.A / pairs.B).median().item():.2f}" if len(pairs) else "-"
    return [
        f"{behavior.explained_variance:.3f}",
        f"{behavior.l0:.1f}",
        f"{behavior.dead:,}",
        f"{len(pairs):,}",
        share,
        ratio,
    ]


def terminal_tables(findings: list[Finding]) -> list[Table]:
    """The tables for `rich` to print: of the weights and, if there is a text, on that.

    Args:
        findings: What was found of each SAE.

    Returns:
        Renderables.
    """
    weights = [[each.inspection.name, *cells_of_weights(each)] for each in findings]
    tables = [terminal_table(["SAE", *HEADINGS], weights, text=(0, 1), note=NOTE)]
    on_text = [[name, *cells] for name, cells in rows_on_text(findings)]
    if on_text:
        tables.append(terminal_table(["SAE", *HEADINGS_ON_TEXT], on_text, note=NOTE_ON_TEXT))
    return tables


def rows_on_text(findings: list[Finding]) -> list[tuple[str, list[str]]]:
    """The rows of the second table.

    Args:
        findings: What was found of each SAE.

    Returns:
        Names and cells.
    """
    return [
        (each.inspection.name, cells_on_text(each.behavior))
        for each in findings
        if each.behavior
    ]


def report_html(findings: list[Finding]) -> str:
    """Render the report. It loads nothing from anywhere.

    Args:
        findings: What was found of each SAE.

    Returns:
        An HTML document.
    """
    inspections = [each.inspection for each in findings]
    behaviors = {each.inspection.name: each.behavior for each in findings if each.behavior}
    packages = ("sae-lens-c2r", "sae-lens", "torch")
    return render(
        "sae_lens_c2r.inspection",
        headings=HEADINGS,
        rows=[(each.inspection, cells_of_weights(each)) for each in findings],
        headings_on_text=HEADINGS_ON_TEXT,
        rows_on_text=rows_on_text(findings),
        note=NOTE,
        note_on_text=NOTE_ON_TEXT,
        picture=cosine_distributions(inspections),
        behaviors=behaviors,
        frequencies=firing_frequencies(behaviors) if behaviors else None,
        consolidation=consolidation(behaviors) if behaviors else None,
        metadata=METADATA,
        versions=", ".join(f"{package} {version(package)}" for package in packages),
    )
