"""`sae-lens-c2r inspect`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.remote_code import TRUSTED
from sae_lens_c2r.cli import _shared as shared
from sae_lens_c2r.cli._shared import console_while_loading, error_boundary, option

if TYPE_CHECKING:
    from sae_lens_c2r.models.text_source import TextSource
    from sae_lens_c2r.saes.sae_ref import SAERef

_MEASURED_TOKENS = 100_000


def inspect(
    saes: list[str] = shared.SAES,
    out: Path = option(Path("report.html"), "File for the report."),
    text: str | None = option(
        None,
        "Text for the SAEs' model: a file, a folder, a dataset on the Hub, "
        "or python-documentation, which needs no network.",
        unset="only weights are measured",
    ),
    split: str | None = shared.SPLIT,
    subset: str | None = shared.SUBSET,
    column: str | None = shared.COLUMN,
    model: str | None = shared.MODEL,
    context_size: int | None = option(None, "Tokens in a row.", unset="the SAE's", min=1),
    tokens: int = option(_MEASURED_TOKENS, "Most tokens to read.", min=1),
    device: str | None = shared.DEVICE,
    trust_remote_code: bool = shared.TRUST,
    as_json: bool = shared.JSON,
    overwrite: bool = shared.OVERWRITE,
) -> None:
    """Measure any SAELens SAEs, and write a report for a browser."""
    with error_boundary() as problems:
        TRUSTED.set(trust_remote_code)
        if out.is_dir() or not out.parent.is_dir():
            raise UserError("out", "be a file in a folder that exists", out)
        if out.exists() and not overwrite:
            raise UserError("out", "be a new file, unless `--overwrite` is given", out)
        console = console_while_loading()
        from sae_lens_c2r._support.files import write_text
        from sae_lens_c2r.inspection.activations import ActivationSource
        from sae_lens_c2r.inspection.comparison import inspect as inspect_all
        from sae_lens_c2r.inspection.report import in_terminal, report_html
        from sae_lens_c2r.models.text_source import TextSource
        from sae_lens_c2r.saes.sae_ref import find_saes

        how: dict[str, Any] = {"device": shared.device_or_usual(device), "tell": console.say}
        source = None
        if text is not None:
            of_model = {"model_name": model, "context_size": context_size}
            instead = {key: value for key, value in of_model.items() if value is not None}
            part = TextSource(text, split, subset, column)
            source = ActivationSource(part, n_tokens=tokens, instead=instead, **how)
        found = find_saes(saes, on_error=problems.append)
        reports, comparisons = inspect_all(
            found, source=source, on_error=problems.append, **how
        )
        if not reports:
            return
        if as_json:
            compared = comparisons[0].numbers if comparisons else {}
            numbers = {"saes": {each.source: each.metrics() for each in reports}, **compared}
            print(json.dumps(numbers, indent=1, allow_nan=False))
        else:
            console.print(*in_terminal(reports, comparisons, width=console.width), sep="\n")
        # A report without the text would be in the way of the next attempt's.
        if text is None or any(report.on_text for report in reports):
            write_text(out, report_html(reports, comparisons, made_by="sae-lens-c2r inspect"))
            console.say(f"Report: {out}")


def compare_on(
    text: "TextSource",
    refs: Sequence["SAERef"],
    out: Path,
    console: shared.LineConsole,
    *,
    device: str,
    made_by: str,
    instead: Mapping[str, Any] | None = None,
) -> None:
    """Compare two SAEs on a text, as a command that has trained one of them does at its end."""
    from sae_lens_c2r._support.files import write_text
    from sae_lens_c2r.inspection.activations import ActivationSource
    from sae_lens_c2r.inspection.comparison import inspect as inspect_all
    from sae_lens_c2r.inspection.report import in_terminal, report_html

    def stop(error: UserError) -> None:
        raise error

    how: dict[str, Any] = {"device": device, "tell": console.say}
    instead = dict(instead or {})
    source = ActivationSource(text, n_tokens=_MEASURED_TOKENS, instead=instead, **how)
    found = inspect_all(refs, source=source, on_error=stop, **how)
    console.print(*in_terminal(*found, width=console.width), sep="\n")
    write_text(out, report_html(*found, made_by=f"sae-lens-c2r {made_by}"))
    console.say(f"Report: {out}")
