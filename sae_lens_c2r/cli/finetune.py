"""`sae-lens-c2r finetune`: a release that starts from an SAE, its training, and `inspect`."""

from pathlib import Path

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import check_writable, write_text
from sae_lens_c2r._support.remote_code import TRUSTED
from sae_lens_c2r.cli import _shared as shared
from sae_lens_c2r.cli._shared import console_while_loading, error_boundary, option
from sae_lens_c2r.cli.inspect import compare_on
from sae_lens_c2r.cli.train import how_to_go_on, show_plan

_NAME = "finetuned"


def finetune(
    sae: list[str] = shared.SAE,
    tokens: int = option(..., "Tokens to train on.", min=1),
    out: Path = option(Path(_NAME), "Folder for the release, the SAE and the report."),
    changes: list[str] | None = shared.SET,
    text: str | None = option(
        None, "Text to measure on, as for `inspect`.", unset="the training text"
    ),
    split: str | None = option(None, "Split of that text.", unset="train, or the only one"),
    device: str | None = shared.DEVICE,
    trust_remote_code: bool = shared.TRUST,
    resume: bool = shared.RESUME,
    dry_run: bool = shared.DRY_RUN,
) -> None:
    """Fine-tune an existing SAE with C2R, and show what changed."""
    with error_boundary(how_to_go_on=lambda: how_to_go_on(out)):
        TRUSTED.set(trust_remote_code)
        check_writable(out)
        console = console_while_loading()
        from sae_lens_c2r._support.yaml_text import parse_overrides
        from sae_lens_c2r.models.reading import Reading
        from sae_lens_c2r.models.text import read_text
        from sae_lens_c2r.models.text_source import TextSource
        from sae_lens_c2r.releases.from_sae import release_from
        from sae_lens_c2r.saes.sae_ref import SAERef, find_sae
        from sae_lens_c2r.training.plan import make_plan
        from sae_lens_c2r.training.train import train

        device, ref = shared.device_or_usual(device), find_sae(sae)
        values = parse_overrides(changes or [])
        release, document = release_from(
            ref, _NAME, tokens=tokens, changes=values, tell=console.say
        )
        written = out / f"{_NAME}.yaml"
        same = written.is_file() and written.read_text(encoding="utf-8") == document
        if out.is_dir() and any(out.iterdir()) and not same:
            raise UserError("out", "be empty, or hold this same fine-tuning", out)
        plan = make_plan(release, device=device)
        show_plan(plan, console)
        # Both SAEs read as the training does, also where the first one says less.
        reading = Reading.of_settings(plan.settings())
        asked = TextSource(text or str(reading.dataset_path), split)
        measured = reading.text_as_trained(asked)
        if text or split:
            read_text(measured)  # or what cannot be read would be told after the training
        if dry_run:
            train(plan, out, resume=resume, dry_run=True, log=console.say)
            return
        out.mkdir(parents=True, exist_ok=True)
        write_text(written, document)
        train(plan, out, resume=resume, log=console.say)
        [sae_id] = plan.saes
        refs, report = [ref, SAERef(folder=out / sae_id)], out / "report.html"
        how = {"device": device, "made_by": "finetune"}
        compare_on(measured, refs, report, console, instead=reading.model_dump(), **how)
