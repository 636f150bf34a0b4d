"""The demo from end to end: a release is trained, proved to load, and compared."""

import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from rich.console import Console
from sae_lens import SAE, TrainingSAE
from sae_lens.training.sae_trainer import SAETrainer
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import write_json, write_text
from sae_lens_c2r._support.libraries import versions
from sae_lens_c2r._support.process import stop_requests
from sae_lens_c2r.inspection.activations import ActivationSource
from sae_lens_c2r.inspection.comparison import Comparison, compare
from sae_lens_c2r.inspection.measures import SAEReport, measure
from sae_lens_c2r.inspection.report import in_terminal, report_html
from sae_lens_c2r.models import offline
from sae_lens_c2r.models.offline import SMOLLM2, model_folder
from sae_lens_c2r.models.text import one_column
from sae_lens_c2r.models.text_source import OFFLINE_DATASET, TextSource
from sae_lens_c2r.penalties.neighbors import has_fast_bfloat16
from sae_lens_c2r.releases.files import read_release
from sae_lens_c2r.releases.model import Release
from sae_lens_c2r.saes.encoding import (
    contributions,
    contributions_here,
    encode_in_saelens_alone,
    encodes_alike,
)
from sae_lens_c2r.saes.record import HELD_OUT, RECORD, Evaluation, as_document, read_record
from sae_lens_c2r.training.plan import Plan, make_plan
from sae_lens_c2r.training.train import train

PLAIN, REGULARIZED = "batchtopk", "batchtopk_c2r"
_COMPARED_TOKENS = 64
_CONTEXT_SIZE = 256
_DECAY = 5 * 512  # tokens for each step of the decay: the last fifth, in batches of 512
_INTRO = (
    "Two sparse autoencoders of SmolLM2-135M-Instruct (weights quantized to four bits), after "
    "its fifth block, trained from the same weights on the same activations in the same order: "
    f"SAELens's {PLAIN}, and {REGULARIZED}, which adds the C2R penalty. The text is Python's "
    "own documentation. All numbers and tokens in context are from documents that were held "
    "out from training."
)
_MEANING = (
    "Composition: mean cosine of a latent's direction with its nearest neighbour's.\n"
    "Chance level: composition of random directions. C2R should bring composition near the\n"
    "chance level, and hardly change explained variance. Dead latents fire on no held-out\n"
    "token. The report has more measures."
)


def demo_release(
    *, tokens: int, d_sae: int, k: int, c2r_coefficient: float, seed: int, device: str = "cpu"
) -> Release:
    """BatchTopK with and without C2R, from the same weights on the same activations."""
    changes: dict[str, Any] = {"sae.d_sae": d_sae, "sae.k": k}
    changes["language_model.training_tokens"] = tokens
    changes |= dict.fromkeys(("runner.seed", "sae.seed", "sae.c2r_seed"), seed)
    changes["runner.lr_decay_steps"] = tokens // _DECAY
    # A short training should not read more tokens at once than it uses.
    rows = tokens // _CONTEXT_SIZE
    changes["runner.n_batches_in_buffer"] = min(64, rows)
    changes["runner.store_batch_size_prompts"] = min(32, rows)
    if not has_fast_bfloat16(torch.device(device)):
        changes |= {"runner.model_from_pretrained_kwargs": {}, "runner.autocast": False}
    path = Path(str(files("sae_lens_c2r.demo").joinpath("smollm2-demo.yaml")))
    return read_release(path, overrides={**changes, "sae.c2r_coefficient": c2r_coefficient})


def run_demo(
    out: Path, console: Console, *, device: str, tell: Callable[[str], None], **settings: Any
) -> None:
    """Train both SAEs of `demo_release`, see them load, measure them, and write the report."""
    # Everything is written into a hidden folder first: `out` never shows half a result. That
    # folder is within `out` if it exists, as `out` may be a disk of its own.
    places = (out.absolute(), *out.absolute().parents)
    nearest = next(folder for folder in places if folder.is_dir())
    with (
        stop_requests() as request,
        TemporaryDirectory(prefix=f".{out.name}-", dir=nearest) as scratch,
    ):
        folder = Path(scratch)
        model_folder(SMOLLM2)  # where its package is missing, an error says what to install
        plan = make_plan(demo_release(**settings, device=device), device=device)
        tell("Reading Python's documentation ...")
        texts = offline.split(offline.documents(), held_out_share=0.1, seed=settings["seed"])
        tell("{:,} documents to train on, {:,} held out.".format(*map(len, texts)))
        training, held_out = (one_column(Dataset.from_dict({"text": part})) for part in texts)
        trained = _train(replace(plan, text=training), folder, tell)
        reports, comparison = _measure(trained, held_out, plan, folder, tell)
        asked = {"out": str(out), **settings, "device": device}
        _write(folder, asked, reports, comparison)
        request.deferrable = True  # a move that has begun is finished
        move_into(out, folder)
    console.print("Measured on held-out text")
    shown = in_terminal(reports, [comparison], width=console.width, brief=True)
    console.print(*shown, _MEANING, sep="\n")
    # A path is to be copied: neither read as markup nor wrapped.
    console.print(
        f"\nReport:  {out / 'report.html'}",
        f"Numbers: {out / 'results.json'}",
        f"SAEs:    {out / PLAIN}",
        f"         {out / REGULARIZED}",
        "Load an SAE, with SAELens alone:",
        f"  from sae_lens import SAE; sae = SAE.load_from_disk({str(out / REGULARIZED)!r})",
        "Fine-tune the plain SAE with C2R, on half as many tokens:",
        f"  sae-lens-c2r finetune {shlex.quote(str(out / PLAIN))} "
        f"--tokens {settings['tokens'] // 2}",
        sep="\n",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _train(
    plan: Plan, folder: Path, tell: Callable[[str], None]
) -> dict[str, TrainingSAE[Any]]:
    """Train the SAEs of a plan into a folder."""
    tell(f"Training {PLAIN} and {REGULARIZED}, {plan.samples:,} tokens ...")
    trained: dict[str, TrainingSAE[Any]] = {}

    def watch(sae_id: str, trainer: SAETrainer[Any, Any]) -> None:
        trained[sae_id] = trainer.sae

    begun = time.perf_counter()
    try:
        train(plan, folder, checkpoint_minutes=0, watch=watch)
    except UserError as error:
        # The file that has the traceback goes with the folder.
        raise error.__cause__ or error from None
    tell(f"Training took {time.perf_counter() - begun:.0f} s.")
    return trained


def _measure(
    trained: Mapping[str, TrainingSAE[Any]],
    held_out: IterableDataset,
    plan: Plan,
    folder: Path,
    tell: Callable[[str], None],
) -> tuple[list[SAEReport], Comparison]:
    """See trained SAEs load without us, measure them on held-out text, and compare them."""
    saes: dict[str, SAE[Any]] = {
        name: SAE.load_from_disk(folder / name, device=plan.device) for name in trained
    }
    named = TextSource(OFFLINE_DATASET)
    source = ActivationSource(named, opened=held_out, n_tokens=plan.samples, device=plan.device)
    text = source.activations(saes[PLAIN], PLAIN)
    check_saved(folder, saes, trained, text.activations[:_COMPARED_TOKENS])
    for name in saes:
        tell(f"Saved {name}. SAELens alone loads the SAE and encodes the same.")
    tell("Measuring on the held-out text ...")
    begun = time.perf_counter()
    reports = [measure(sae, name, text) for name, sae in saes.items()]
    comparison = compare(saes[PLAIN], saes[REGULARIZED], text, reports=reports)
    tell(f"Measuring took {time.perf_counter() - begun:.0f} s.")
    return reports, comparison


def _write(
    folder: Path,
    asked: Mapping[str, Any],
    reports: list[SAEReport],
    comparison: Comparison,
) -> None:
    """Write what was measured into a folder, and what was asked for."""
    for report in reports:
        # An SAE's card is made of what training recorded: what was measured belongs there.
        assert report.on_text is not None, "measured on the held-out text"
        record = read_record(folder / report.name)
        held_out = Evaluation(
            text=report.on_text.text,
            settings={"n_tokens": report.on_text.n_tokens},
            device=record.device,
            versions=record.versions,
            metrics=report.on_text.numbers,
        )
        evaluations = {**record.evaluations, HELD_OUT: held_out}
        record = record.model_copy(update={"evaluations": evaluations})
        write_json(folder / report.name / RECORD, as_document(record))
    results = {
        "settings": asked,
        "versions": versions(),
        "held_out": {report.name: report.metrics() for report in reports},
        **comparison.numbers,
    }
    write_json(folder / "results.json", results)
    options = " ".join(
        f"--{name.replace('_', '-')} {str(value).removesuffix('.0')}"
        for name, value in asked.items()
        if name not in ("out", "device")
    )
    html = report_html(
        reports,
        [comparison],
        made_by=f"sae-lens-c2r demo {options}",
        title="What C2R did to an SAE",
        intro=_INTRO,
        load=str(Path(asked["out"]) / REGULARIZED),
    )
    write_text(folder / "report.html", html)


def check_saved(
    folder: Path,
    saes: Mapping[str, SAE[Any]],
    trained: Mapping[str, TrainingSAE[Any]],
    inputs: Tensor,
) -> None:
    """Raise unless SAELens alone loads what was saved, and encodes as what was trained."""
    requests = [({"folder": str(folder / name)}, inputs) for name in saes]
    for name, alone in zip(saes, encode_in_saelens_alone(requests), strict=True):
        expected = contributions_here(trained[name], inputs)
        if not encodes_alike(contributions(alone.feature_acts, saes[name]), expected):
            raise UserError(
                f"{name} should encode as in training once it is saved. It does not."
            )


def move_into(out: Path, scratch: Path) -> None:
    """Move all files and folders of `scratch` into `out`, over those of the same names."""
    out.mkdir(parents=True, exist_ok=True)
    for new in scratch.iterdir():
        old = out / new.name
        if old.is_dir():
            shutil.rmtree(old)
        new.replace(old)
