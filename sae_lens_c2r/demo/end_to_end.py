"""The demo from end to end: text, training, proof, measuring, report."""

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from datasets import Dataset
from rich.console import Console
from sae_lens import SAE
from torch import Tensor
from transformers import AutoTokenizer

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.reading import read_object
from sae_lens_c2r._support.stopping import stop_requests
from sae_lens_c2r._support.writing import write_json, write_text
from sae_lens_c2r.demo.comparison import (
    ComparedSAE,
    comparison_html,
    comparison_tables,
    results,
    twins_sentence,
)
from sae_lens_c2r.demo.counterparts import with_counterparts
from sae_lens_c2r.demo.curves import History, record
from sae_lens_c2r.demo.options import PLAIN, REGULARIZED, DemoOptions
from sae_lens_c2r.demo.quiet import quiet_libraries
from sae_lens_c2r.demo.release import demo_release
from sae_lens_c2r.demo.twins import Twins, find_twins
from sae_lens_c2r.inspection.behavior import PAIRS_SHOWN, Reconstruction, reconstruct
from sae_lens_c2r.inspection.contexts import redundant_pairs_in_context
from sae_lens_c2r.inspection.measures import inspect_sae
from sae_lens_c2r.inspection.reader import TextReader
from sae_lens_c2r.offline import corpus
from sae_lens_c2r.offline.minilm import CONTEXT_SIZE, model_folder
from sae_lens_c2r.saes.probe import contributions, encodes_alike, trained_contributions
from sae_lens_c2r.saes.saelens_alone import encode_in_saelens_alone
from sae_lens_c2r.training.plan import make_plan
from sae_lens_c2r.training.record import RECORD
from sae_lens_c2r.training.train import train

HELD_OUT_SHARE = 0.1
_COMPARED_TOKENS = 64


def run_demo(options: DemoOptions, console: Console) -> dict[str, ComparedSAE]:
    """Train both SAEs, save, reload and measure them, and write the report."""
    model = str(model_folder())
    # Everything is written beside `out` first: it never holds half a result.
    beside = next(folder for folder in options.out.absolute().parents if folder.is_dir())
    with (
        stop_requests() as request,
        quiet_libraries(),
        TemporaryDirectory(prefix=f".{options.out.name}-", dir=beside) as scratch,
    ):
        measured, twins = _run(options, model, Path(scratch), console)
        request.deferrable = True  # what was begun to be moved is moved
        _move_into(options.out, Path(scratch))
    console.print(*comparison_tables(measured), sep="\n")
    console.print(twins_sentence(twins), highlight=False)
    _say_where_everything_is(options.out, options.tokens, console)
    return measured


def _run(
    options: DemoOptions, model: str, folder: Path, console: Console
) -> tuple[dict[str, ComparedSAE], Twins]:
    """Do all of it in a folder."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    rows, held_out_rows = _rows(tokenizer, options.seed, console)
    console.print(f"Training {PLAIN} and {REGULARIZED}, {options.tokens:,} tokens ...")
    histories = _train(options, rows, folder)
    saes: dict[str, SAE[Any]] = {
        name: SAE.load_from_disk(folder / name, device=options.device) for name in histories
    }
    n_tokens = len(held_out_rows) * CONTEXT_SIZE
    reader = TextReader(held_out_rows, model=model, n_tokens=n_tokens, device=options.device)
    text = reader.activations(saes[PLAIN], PLAIN)
    _check_saved(folder, saes, histories, text.activations[:_COMPARED_TOKENS])
    for name in saes:
        console.print(
            f"Saved {name}; a process without sae_lens_c2r loads it and encodes alike."
        )
    console.print("Measuring on the held-out text ...")
    measured = {
        name: ComparedSAE(inspect_sae(sae, name), reconstruct(sae, text), histories[name])
        for name, sae in saes.items()
    }
    for name, each in measured.items():
        _record_held_out(folder / name / RECORD, each.held_out)
    both = saes[PLAIN], saes[REGULARIZED]
    times_fired = measured[PLAIN].held_out.times_fired
    other_fires = measured[REGULARIZED].held_out.times_fired > 0
    twins = find_twins(*both, text, fires=times_fired > 0, other_fires=other_fires)
    pairs = redundant_pairs_in_context(
        saes[PLAIN], text, tokenizer, times_fired=times_fired, most=PAIRS_SHOWN
    )
    replaced = with_counterparts(pairs, *both, text, tokenizer, other_fires=other_fires)
    write_json(folder / "results.json", results(measured, twins, options))
    write_text(folder / "report.html", comparison_html(measured, twins, replaced, options))
    return measured, twins


def _record_held_out(path: Path, found: Reconstruction) -> None:
    """Add what was measured to what training recorded: an SAE's card is made of that."""
    together = {f"co_firing.{key}": value for key, value in found.co_firing.summary().items()}
    measures = {
        "explained_variance": found.explained_variance,
        "l0": found.l0,
        "dead_latents": found.dead,
        **together,
    }
    said = {"text": corpus.NAME, "n_tokens": found.n_tokens, "metrics": measures}
    write_json(path, {**read_object(path), "held_out": said})


def _rows(tokenizer: Any, seed: int, console: Console) -> list[Dataset]:
    """Python's documentation in rows of tokens: to train on, and held out by the document."""
    console.print("Reading Python's documentation ...")
    parts = corpus.split(corpus.documents(), held_out_share=HELD_OUT_SHARE, seed=seed)
    rows = [corpus.token_rows(texts, tokenizer) for texts in parts]
    console.print(
        f"{len(parts[0]):,} documents to train on ({rows[0].numel():,} tokens), "
        f"{len(parts[1]):,} held out ({rows[1].numel():,} tokens)."
    )
    return [Dataset.from_dict({"tokens": part.tolist()}) for part in rows]


def _train(options: DemoOptions, rows: Dataset, folder: Path) -> dict[str, History]:
    plan = replace(make_plan(demo_release(options), device=options.device), dataset=rows)
    histories: dict[str, History] = {}
    watch = partial(record, histories)
    try:
        train(plan, folder, checkpoint_minutes=0, watch=watch)
    except UserError as error:
        # The file that has the traceback goes with the folder.
        raise error.__cause__ or error from None
    return histories


def _check_saved(
    folder: Path, saes: Mapping[str, SAE[Any]], histories: Mapping[str, History], inputs: Tensor
) -> None:
    """Raise unless SAELens alone loads what was saved, and encodes as what was trained."""
    requests = [({"folder": str(folder / name)}, inputs) for name in saes]
    for name, alone in zip(saes, encode_in_saelens_alone(requests), strict=True):
        expected = trained_contributions(histories[name].sae, inputs)
        if not expected.isfinite().all():
            raise UserError(f"{name} has activations that are not finite numbers.")
        if not encodes_alike(contributions(alone.feature_acts, saes[name]), expected):
            raise UserError(
                f"{name}, as it was saved, does not encode as the trained one does."
            )


def _move_into(out: Path, scratch: Path) -> None:
    """Put every file and folder of `scratch` into `out`, in place of what has its name."""
    out.mkdir(parents=True, exist_ok=True)
    for new in scratch.iterdir():
        old = out / new.name
        if old.is_dir():
            shutil.rmtree(old)
        new.replace(old)


def _say_where_everything_is(out: Path, tokens: int, console: Console) -> None:
    lines = [
        f"\nReport:  {out / 'report.html'}",
        f"Numbers: {out / 'results.json'}",
        f"SAEs:    {out / PLAIN}",
        f"         {out / REGULARIZED}",
        "Load one, with SAELens alone:",
        f"  from sae_lens import SAE; sae = SAE.load_from_disk({str(out / REGULARIZED)!r})",
        "Pull the plain one's latents apart, in half of its training:",
        f"  sae-lens-c2r repair {shlex.quote(str(out / PLAIN))} --tokens {tokens // 2}",
    ]
    # A path is to be copied: neither read as markup nor wrapped.
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
