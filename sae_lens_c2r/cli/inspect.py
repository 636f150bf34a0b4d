"""`sae-lens-c2r inspect`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sae_lens_c2r.cli._console import console_while_loading, say
from sae_lens_c2r.cli._errors import error_boundary
from sae_lens_c2r.cli._options import (
    AnySAEsArgument,
    DeviceOption,
    ModelOption,
    OverwriteOption,
    usable_device,
)


def inspect(
    saes: AnySAEsArgument,
    out: Annotated[Path, typer.Option(help="The report.")] = Path("report.html"),
    figure: Annotated[
        Path | None, typer.Option(help="The picture alone, as SVG.", show_default="none")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            help="Text to run the SAEs' model on: a file, a dataset on the Hub, or "
            "python-documentation, which comes with all-MiniLM-L6-v2.",
            show_default="the weights alone are looked at",
        ),
    ] = None,
    model: ModelOption = None,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of the text, at most.")] = 100_000,
    device: DeviceOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Measure any SAELens SAEs, and write a report to look at."""
    with error_boundary("Interrupted.") as problems:
        console = console_while_loading()
        from sae_lens_c2r.inspection.plots import cosine_distributions
        from sae_lens_c2r.inspection.report import report_html, terminal_tables
        from sae_lens_c2r.inspection.run import check_free
        from sae_lens_c2r.inspection.run import inspect as inspect_all
        from sae_lens_c2r.inspection.text import reader_of
        from sae_lens_c2r.saes.sources import find_sources

        device = usable_device(device)
        for path in (out, figure):
            if path is not None:
                check_free(path, overwrite=overwrite)
        sources = find_sources(saes, on_error=problems.append)
        reader = text and reader_of(text, model=model, n_tokens=tokens, device=device)
        found = inspect_all(
            sources,
            device=device,
            on_error=problems.append,
            reader=reader or None,
            tell=partial(say, console),
        )
        if found:
            console.print(*terminal_tables(found), sep="\n")
            out.write_text(report_html(found), encoding="utf-8")
            say(console, f"Report: {out}")
        if found and figure is not None:
            picture = cosine_distributions([each.inspection for each in found])
            figure.write_text(picture + "\n", encoding="utf-8")
