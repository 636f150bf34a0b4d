"""`sae-lens-c2r evaluate`."""

from pathlib import Path

from sae_lens_c2r._support.files import check_writable
from sae_lens_c2r._support.remote_code import TRUSTED
from sae_lens_c2r.cli import _shared as shared
from sae_lens_c2r.cli._shared import console_while_loading, error_boundary, option


def evaluate(
    saes: list[str] = shared.SAES,
    sae_bench: list[str] | None = option(
        None, "SAEBench's evaluations, joined by commas: core, absorption."
    ),
    sae_lens: bool = option(True, "Run SAELens's own evaluation too."),
    model: str | None = shared.MODEL,
    text: str | None = option(
        None,
        "Text for SAELens's evaluation: a file, a folder, a dataset on the Hub, or "
        "python-documentation.",
        unset="what the SAE was trained on",
    ),
    split: str | None = shared.SPLIT,
    subset: str | None = shared.SUBSET,
    column: str | None = shared.COLUMN,
    overrides: list[str] | None = option(
        None, "A setting, like core.batch_size_prompts=4; may be repeated.", "--set"
    ),
    out: Path = option(Path("evaluation"), "Folder for the results."),
    device: str | None = shared.DEVICE,
    trust_remote_code: bool = shared.TRUST,
) -> None:
    """Evaluate any SAEs with SAEBench and SAELens; results in --out are not computed again.

    With other settings or another text, a new result replaces the earlier one.
    """
    interrupted = "Interrupted. The same command runs the missing evaluations."
    with error_boundary(interrupted) as problems:
        TRUSTED.set(trust_remote_code)
        check_writable(out)
        console = console_while_loading()
        from sae_lens_c2r._support.process import stop_requests
        from sae_lens_c2r._support.yaml_text import parse_overrides
        from sae_lens_c2r.evaluation.evaluate import evaluate as evaluate_all
        from sae_lens_c2r.evaluation.results import REPORT_FILE, is_of_one_text, table_of
        from sae_lens_c2r.evaluation.settings import ABSORPTION, ABSORPTION_ADVICE, Options
        from sae_lens_c2r.saes.sae_ref import find_saes

        part = {"split": split, "subset": subset, "column": column}
        asked = [each.strip() for text in sae_bench or [] for each in text.split(",")]
        options = Options(
            out=out,
            sae_bench=list(dict.fromkeys(filter(None, asked))),
            sae_lens=sae_lens,
            model=model,
            text=text,
            part={name: value for name, value in part.items() if value is not None},
            overrides=parse_overrides(overrides or [], example="core.context_size=64"),
            device=shared.device_or_usual(device),
        )
        with stop_requests():
            found = find_saes(saes, on_error=problems.append)
            report = evaluate_all(found, options, on_error=problems.append, tell=console.say)
        if report.saes:
            table = table_of(report)
            console.print(*table.in_terminal(width=console.width), sep="\n")
            if not is_of_one_text(report):
                console.say("Not all rows are of the same text and settings.")
            if ABSORPTION in options.sae_bench:
                console.say(ABSORPTION_ADVICE)
            console.say(f"All results: {out / REPORT_FILE}")
