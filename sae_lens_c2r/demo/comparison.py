"""Both SAEs side by side: `results.json`, a table, and a self-contained `report.html`."""

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from sae_lens_c2r._support.versions import package_versions
from sae_lens_c2r.demo.counterparts import PairWithCounterparts
from sae_lens_c2r.demo.curves import History, training_curves
from sae_lens_c2r.demo.options import PLAIN, REGULARIZED, DemoOptions
from sae_lens_c2r.demo.release import HOOK_NAME
from sae_lens_c2r.demo.twins import Twins
from sae_lens_c2r.inspection.behavior import Reconstruction
from sae_lens_c2r.inspection.firing_together import (
    HEADINGS_TOGETHER,
    NOTE_TOGETHER,
    cells_together,
)
from sae_lens_c2r.inspection.measures import Inspection
from sae_lens_c2r.inspection.plots import cosine_distributions
from sae_lens_c2r.reporting.html import render
from sae_lens_c2r.reporting.tables import terminal_table

_COLUMNS = {  # of the table: their headings, and how their numbers are shown
    "explained_variance": ("explained\nvariance", ".3f"),
    "l0": ("L0", ".1f"),
    "composition": ("composition", ".3f"),
    "pairs_above_0_9": ("pairs\n> 0.9", ","),
    "pairs_above_0_7": ("pairs\n> 0.7", ","),
    "dead_latents": ("dead\nlatents", ","),
    "tokens_per_second": ("tokens/s", ",.0f"),
}
HEADINGS = [heading for heading, _ in _COLUMNS.values()]
_NOTE = (
    "Composition: mean maximum decoder cosine. Its chance level at this size is {:.3f}; below "
    "that, lower is not better. Pairs: of latents with a cosine above 0.9 and 0.7. Tokens/s: "
    "of the SAE's own training steps."
)


@dataclass(frozen=True)
class ComparedSAE:
    """What was measured of one SAE: its weights, its activations on text, its training."""

    inspection: Inspection
    held_out: Reconstruction
    history: History

    def metrics(self) -> dict[str, Any]:
        """The numbers of its lines of the tables, and the chance level of its composition."""
        above_0_9, above_0_7 = self.inspection.pairs
        return {
            "explained_variance": self.held_out.explained_variance,
            "l0": self.held_out.l0,
            "composition": self.inspection.composition,
            "chance_composition": self.inspection.chance_composition,
            "pairs_above_0_9": above_0_9,
            "pairs_above_0_7": above_0_7,
            "dead_latents": self.held_out.dead,
            "tokens_per_second": self.history.tokens_per_second,
            "co_firing": self.held_out.co_firing.summary(),
        }

    def cells(self) -> list[str]:
        """The cells of its line of the first table, beside its name."""
        metrics = self.metrics()
        return [format(metrics[name], shown) for name, (_, shown) in _COLUMNS.items()]


def results(
    measured: Mapping[str, ComparedSAE], twins: Twins, options: DemoOptions
) -> dict[str, Any]:
    """What `results.json` holds."""
    return {
        "settings": {**asdict(options), "out": str(options.out)},
        "versions": _versions(),
        "held_out": {name: each.metrics() for name, each in measured.items()},
        "twins": twins.summary(),
    }


def comparison_tables(measured: Mapping[str, ComparedSAE]) -> list[Table]:
    """The tables for `rich` to print: of all, and of how much the latents fire together."""
    rows = [[name, *each.cells()] for name, each in measured.items()]
    title, note = "Measured on held-out text", _note(measured)
    together = [[name, *cells] for name, cells in _rows_together(measured)]
    return [
        terminal_table(["SAE", *HEADINGS], rows, broken=(), title=title, note=note),
        terminal_table(["SAE", *HEADINGS_TOGETHER], together, broken=(), note=NOTE_TOGETHER),
    ]


def twins_sentence(twins: Twins) -> str:
    """What became of the latents that are alike without C2R."""
    return twins.sentence(PLAIN, REGULARIZED)


def comparison_html(
    measured: Mapping[str, ComparedSAE],
    twins: Twins,
    pairs: list[PairWithCounterparts],
    options: DemoOptions,
) -> str:
    """Render the report. It loads nothing from anywhere."""
    versions = ", ".join(f"{name} {number}" for name, number in _versions().items())
    return render(
        "demo/report.html",
        headings=HEADINGS,
        rows=[(name, each.cells()) for name, each in measured.items()],
        note=_note(measured),
        headings_together=HEADINGS_TOGETHER,
        rows_together=_rows_together(measured),
        note_together=NOTE_TOGETHER,
        twins=twins_sentence(twins),
        picture=cosine_distributions([each.inspection for each in measured.values()]),
        curves=training_curves({name: each.history for name, each in measured.items()}),
        pairs=pairs,
        options=options,
        versions=versions,
        hook_name=HOOK_NAME,
        plain_name=PLAIN,
        regularized_name=REGULARIZED,
    )


def _rows_together(measured: Mapping[str, ComparedSAE]) -> list[tuple[str, list[str]]]:
    return [(name, cells_together(each.held_out.co_firing)) for name, each in measured.items()]


def _note(measured: Mapping[str, ComparedSAE]) -> str:
    return _NOTE.format(next(iter(measured.values())).inspection.chance_composition)


def _versions() -> dict[str, str]:
    packages = package_versions("sae-lens-c2r", "sae-lens", "torch", "transformers")
    return {"Python": platform.python_version(), **packages}
