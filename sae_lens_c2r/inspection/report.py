"""What was found of SAEs, as a table in the terminal and as a self-contained `report.html`."""

from importlib.metadata import version
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from rich.box import SIMPLE_HEAD
from rich.table import Table

from sae_lens_c2r.figures import max_cosine_histogram
from sae_lens_c2r.inspection.measures import THRESHOLDS, Inspection

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


def cells_of(inspection: Inspection) -> list[str]:
    """A row of the table, without its name."""
    return [
        inspection.architecture,
        f"{inspection.d_sae:,}",
        f"{inspection.d_in:,}",
        f"{inspection.composition:.3f}",
        f"{inspection.chance_composition:.3f}",
        *(f"{count:,}" for count in inspection.pairs),
    ]


def terminal_table(inspections: list[Inspection]) -> Table:
    """The table for `rich` to print.

    Args:
        inspections: What was found of each SAE.

    Returns:
        A renderable.
    """
    table = Table(caption=NOTE, caption_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("SAE", overflow="fold")
    for heading in HEADINGS:
        table.add_column(
            heading, justify="left" if heading == "form" else "right", no_wrap=True
        )
    for inspection in inspections:
        table.add_row(inspection.name, *cells_of(inspection))
    return table


def picture(inspections: list[Inspection]) -> str:
    """The distributions of maximum cosine, as an SVG element.

    Args:
        inspections: What was found of each SAE.

    Returns:
        The element.
    """
    return max_cosine_histogram(
        {each.name: each.max_cosines for each in inspections},
        [each.chance_composition for each in inspections],
    )


def report_html(inspections: list[Inspection]) -> str:
    """Render the report. It loads nothing from anywhere.

    Args:
        inspections: What was found of each SAE.

    Returns:
        An HTML document.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    source = files("sae_lens_c2r.inspection").joinpath("report.html").read_text("utf-8")
    packages = ("sae-lens-c2r", "sae-lens", "torch")
    return environment.from_string(source).render(
        headings=HEADINGS,
        rows=[(each, cells_of(each)) for each in inspections],
        note=NOTE,
        picture=picture(inspections),
        metadata=METADATA,
        versions=", ".join(f"{package} {version(package)}" for package in packages),
    )
