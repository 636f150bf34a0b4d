"""`sae-lens-c2r evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from sae_lens_c2r.cli._console import console_while_loading, error_boundary
from sae_lens_c2r.cli._options import AnySAEsArgument, DeviceOption, ModelOption, usable_device


def evaluate(
    saes: AnySAEsArgument,
    sae_bench: Annotated[
        list[str] | None,
        typer.Option(
            help="SAEBench's evaluations: core absorption scr tpp sparse_probing "
            "sparse_probing_sae_probes ravel autointerp meta_structure."
        ),
    ] = None,
    sae_lens: Annotated[bool, typer.Option(help="Run SAELens's own evaluation too.")] = True,
    model: ModelOption = None,
    text: Annotated[
        str | None,
        typer.Option(
            help="What SAELens's evaluation reads: a file, a dataset on the Hub, or "
            "python-documentation.",
            show_default="what the SAE was trained on",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with SAEBench's datasets by their names on the Hub, for machines "
            "without network.",
            show_default="they are downloaded",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting, core.batch_size_prompts=4; may be repeated."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("evaluation"),
    jobs: Annotated[int, typer.Option(min=1, help="Evaluations at a time.")] = 1,
    hours: Annotated[float, typer.Option(min=0, help="How long one may take.")] = 24,
    device: DeviceOption = None,
) -> None:
    """Run SAEBench's and SAELens's evaluations of any SAEs; those in --out are kept.

    SAEs of known features are evaluated against these: their training.json says which.
    """
    interrupted = "Interrupted. The same command goes on with what is missing."
    with error_boundary(interrupted) as problems:
        console = console_while_loading()
        from sae_lens_c2r._support.process import stop_requests
        from sae_lens_c2r._support.yaml_text import parse_overrides
        from sae_lens_c2r.evaluation.evaluate import evaluate as evaluate_all
        from sae_lens_c2r.evaluation.report import REPORT_FILE, terminal_tables
        from sae_lens_c2r.evaluation.settings import Options
        from sae_lens_c2r.saes.sae_ref import find_saes

        options = Options(
            out=out,
            sae_bench=list(dict.fromkeys(sae_bench or [])),
            sae_lens=sae_lens,
            model=model,
            text=text,
            data=data,
            overrides=parse_overrides(overrides or [], example="core.context_size=64"),
            device=usable_device(device),
            jobs=jobs,
            hours=hours,
        )
        with stop_requests():
            report = evaluate_all(
                find_saes(saes, on_error=problems.append),
                options,
                on_error=problems.append,
                tell=console.say,
            )
        if report.saes:
            console.print(*terminal_tables(report, width=console.width), sep="\n")
            console.say(f"Everything that was measured: {out / REPORT_FILE}")
