"""`sae-lens-c2r demo`: the training of a release, and `inspect` on text that is held out."""

import os
from pathlib import Path

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.cli import _shared as shared
from sae_lens_c2r.cli._shared import console_while_loading, error_boundary, option
from sae_lens_c2r.cli.inspect import compare_on
from sae_lens_c2r.cli.train import how_to_go_on

_RELEASE = "smollm2-demo"
_HELD_OUT = "train[90%:]"  # of the split whose other documents the release trains on
_MEANING = (
    "C2R should bring composition near its chance level, and hardly change explained variance."
)


def demo(
    out: Path = option(Path("demo-output"), "Folder for the SAEs and the report."),
    device: str | None = shared.DEVICE,
    overwrite: bool = option(False, "Replace an earlier report.", "--overwrite"),
) -> None:
    """Train BatchTopK with and without C2R on a language model, offline, and compare them."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    advice = " The same command continues from the last checkpoint."
    with error_boundary(how_to_go_on=lambda: how_to_go_on(out) and advice):
        report = out / "report.html"
        if report.exists() and not overwrite:
            raise UserError("out", "have no report, unless `--overwrite` is given", report)
        console = console_while_loading()
        from sae_lens_c2r.models.offline import SMOLLM2, model_folder
        from sae_lens_c2r.models.text_source import OFFLINE_DATASET, TextSource
        from sae_lens_c2r.releases.files import find_release, read_release
        from sae_lens_c2r.saes.sae_ref import SAERef
        from sae_lens_c2r.training.plan import make_plan
        from sae_lens_c2r.training.train import train

        device = shared.device_or_usual(device)
        model_folder(SMOLLM2)  # where its package is missing, an error says what to install
        plan = make_plan(read_release(find_release(_RELEASE)), device=device)
        console.say(f"Training {' and '.join(plan.saes)}, {plan.samples:,} tokens ...")
        train(plan, out, resume=True, log=console.say)
        refs = [SAERef(folder=out / sae_id) for sae_id in plan.saes]
        held_out = TextSource(OFFLINE_DATASET, _HELD_OUT)
        compare_on(held_out, refs, report, console, device=device, made_by="demo")
        console.print(_MEANING)
