"""What was found of SAEs, as tables in the terminal and as a self-contained `report.html`."""

from collections.abc import Sequence

from rich.table import Table

from sae_lens_c2r._support.versions import package_versions
from sae_lens_c2r.inspection.behavior import PAIRS_SHOWN, Behavior
from sae_lens_c2r.inspection.contexts import LEAST_COSINE, TOP_TOKENS
from sae_lens_c2r.inspection.findings import Finding
from sae_lens_c2r.inspection.firing_together import (
    HEADINGS_TOGETHER,
    NOTE_TOGETHER,
    cells_together,
)
from sae_lens_c2r.inspection.measures import THRESHOLDS, Inspection
from sae_lens_c2r.inspection.plots import (
    activation_histogram,
    consolidation,
    cosine_distributions,
    firing_frequencies,
)
from sae_lens_c2r.reporting.html import render
from sae_lens_c2r.reporting.tables import fitting_tables

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
METADATA = ("model_name", "hook_name", "dataset_path", "context_size", "l0")


def cells_of_weights(inspection: Inspection) -> list[str]:
    """The cells of an SAE in the table of weights, beside its name."""
    return [
        inspection.architecture,
        f"{inspection.d_sae:,}",
        f"{inspection.d_in:,}",
        f"{inspection.composition:.3f}",
        f"{inspection.chance_composition:.3f}",
        *(f"{count:,}" for count in inspection.pairs),
    ]


def cells_on_text(behavior: Behavior) -> list[str]:
    """The cells of an SAE in the table of what it does on text, beside its name."""
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


def terminal_tables(findings: Sequence[Finding], *, width: int = 80) -> list[Table]:
    """The tables for `rich` to print.

    Args:
        findings: What was found.
        width: Of the terminal. Columns without room beside the names are in further tables.

    Returns:
        That of the weights and, if there is a text, two on that.
    """
    weights = [[each.name, *cells_of_weights(each)] for each in _inspections(findings)]
    tables = fitting_tables(["SAE", *HEADINGS], weights, width=width, text=(0, 1), note=NOTE)
    behaviors = _behaviors(findings)
    if behaviors:
        on_text = [[name, *cells_on_text(each)] for name, each in behaviors.items()]
        together = [[name, *cells_together(each.co_firing)] for name, each in behaviors.items()]
        for headings, rows, note in (
            (HEADINGS_ON_TEXT, on_text, NOTE_ON_TEXT),
            (HEADINGS_TOGETHER, together, NOTE_TOGETHER),
        ):
            tables += fitting_tables(["SAE", *headings], rows, width=width, note=note)
    return tables


def which_pairs(n_pairs: int) -> str:
    """Why so many pairs are shown."""
    of = (
        f"of latents with a cosine of at least {LEAST_COSINE}, each of which fires on at least "
        f"{TOP_TOKENS} tokens of the text, no latent in two of them"
    )
    if n_pairs == PAIRS_SHOWN:
        return f"The {n_pairs} most alike pairs {of}."
    return f"All pairs {of}: {n_pairs}. {PAIRS_SHOWN} would be shown at most."


def report_html(findings: Sequence[Finding]) -> str:
    """Render the report. It loads nothing from anywhere."""
    inspections, behaviors = _inspections(findings), _behaviors(findings)
    versions = package_versions("sae-lens-c2r", "sae-lens", "torch")
    return render(
        "inspection/report.html",
        headings=HEADINGS,
        rows=[(each.name, cells_of_weights(each)) for each in inspections],
        note=NOTE,
        headings_on_text=HEADINGS_ON_TEXT,
        rows_on_text=[(name, cells_on_text(each)) for name, each in behaviors.items()],
        note_on_text=NOTE_ON_TEXT,
        headings_together=HEADINGS_TOGETHER,
        rows_together=[
            (name, cells_together(each.co_firing)) for name, each in behaviors.items()
        ],
        note_together=NOTE_TOGETHER,
        inspections=inspections,
        picture=cosine_distributions(inspections),
        behaviors=behaviors,
        read=_read(findings),
        which_pairs=which_pairs,
        latents={
            each.inspection.name: [(of, activation_histogram(of)) for of in each.latents]
            for each in findings
            if each.latents
        },
        frequencies=firing_frequencies(behaviors) if behaviors else None,
        consolidation=consolidation(behaviors) if behaviors else None,
        metadata=METADATA,
        versions=", ".join(f"{package} {number}" for package, number in versions.items()),
    )


def _read(findings: Sequence[Finding]) -> list[str]:
    """Which text was read, and by which model, in a sentence for all SAEs that share it."""
    found: dict[str, list[str]] = {}
    for each in findings:
        if each.behavior is not None and each.text is not None:
            said = f"{each.behavior.n_tokens:,} tokens of {each.text}, read by {each.model}"
            found.setdefault(said, []).append(each.inspection.name)
    if len(found) == 1:
        return [f"On text: {next(iter(found))}."]
    return [f"On text: {said} ({', '.join(names)})." for said, names in found.items()]


def _inspections(findings: Sequence[Finding]) -> list[Inspection]:
    return [finding.inspection for finding in findings]


def _behaviors(findings: Sequence[Finding]) -> dict[str, Behavior]:
    """What was found on text, by the names of the SAEs of which there is such."""
    return {each.inspection.name: each.behavior for each in findings if each.behavior}
