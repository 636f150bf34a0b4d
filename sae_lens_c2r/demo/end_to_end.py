"""The demo from end to end: text, training, saving, reloading, measuring, report."""

import json
import logging
import platform
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import transformers
from rich.console import Console
from sae_lens import SAE
from transformers import AutoTokenizer

from sae_lens_c2r.demo.contexts import pairs_in_context
from sae_lens_c2r.demo.evaluation import Metrics, evaluate, held_out_activations
from sae_lens_c2r.demo.figures import training_curves
from sae_lens_c2r.demo.record import write_record
from sae_lens_c2r.demo.reload import check_reload
from sae_lens_c2r.demo.report import metrics_table, report_html, terminal_table
from sae_lens_c2r.demo.settings import PLAIN, REGULARIZED, DemoSettings
from sae_lens_c2r.demo.training import Trained, train
from sae_lens_c2r.inspection.measures import inspect_sae
from sae_lens_c2r.inspection.plots import cosine_distributions
from sae_lens_c2r.inspection.text import TextActivations
from sae_lens_c2r.offline import corpus
from sae_lens_c2r.offline.minilm import model_folder

HELD_OUT_SHARE = 0.1
RELOADED_TOKENS = 512
PAIRS_SHOWN = 8


def run_demo(settings: DemoSettings, console: Console) -> dict[str, Metrics]:
    """Train both SAEs, save, reload and measure them, and write the report.

    Args:
        settings: The options.
        console: Where to say what happens.

    Returns:
        The held-out metrics of each SAE.

    Raises:
        UserError: If the demo cannot run, or a saved SAE does not load as it should.
    """
    folder = model_folder()
    with _quiet_libraries():
        tokenizer = AutoTokenizer.from_pretrained(folder)
        console.print("Reading Python's documentation ...")
        training_texts, held_out_texts = corpus.split(
            corpus.documents(), held_out_share=HELD_OUT_SHARE, seed=settings.seed
        )
        rows = corpus.token_rows(training_texts, tokenizer)
        held_out_rows = corpus.token_rows(held_out_texts, tokenizer)
        console.print(
            f"{len(training_texts):,} documents to train on ({rows.numel():,} tokens), "
            f"{len(held_out_texts):,} held out ({held_out_rows.numel():,} tokens)."
        )
        console.print(f"Training {PLAIN} and {REGULARIZED}, {settings.tokens:,} tokens ...")
        trained = train(settings, rows, folder)
        held_out = held_out_activations(trained.model, held_out_rows)

    # Everything is written beside `out` first: it never holds half a result.
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(
        prefix=f".{settings.out.name}-", dir=settings.out.parent
    ) as scratch:
        saved = _save_and_reload(settings, trained, held_out, Path(scratch), console)
        console.print("Measuring on the held-out text ...")
        metrics = {
            name: evaluate(
                sae, held_out, tokens_per_second=trained.histories[name].tokens_per_second
            )
            for name, sae in saved.items()
        }
        _write_results(Path(scratch), settings, metrics)
        html = _report(settings, metrics, trained, saved, held_out, tokenizer)
        Path(scratch, "report.html").write_text(html, encoding="utf-8")
        _move_into(settings.out, Path(scratch))
    console.print(terminal_table(metrics_table(metrics)))
    _say_where_everything_is(settings.out, console)
    return metrics


def _move_into(out: Path, scratch: Path) -> None:
    """Put every file and folder of `scratch` into `out`, in place of what has its name."""
    out.mkdir(exist_ok=True)
    for new in scratch.iterdir():
        old = out / new.name
        if old.is_dir():
            shutil.rmtree(old)
        new.replace(old)


def _save_and_reload(
    settings: DemoSettings,
    trained: Trained,
    held_out: TextActivations,
    out: Path,
    console: Console,
) -> dict[str, SAE[Any]]:
    saved: dict[str, SAE[Any]] = {}
    for name, sae in trained.saes.items():
        sae.save_inference_model(out / name)
        write_record(out / name, settings, seconds=trained.histories[name].seconds)
        check_reload(sae, out / name, held_out.activations[:RELOADED_TOKENS])
        console.print(
            f"Saved {name}; a process without sae_lens_c2r loads it and encodes alike."
        )
        saved[name] = SAE.load_from_disk(out / name, device=str(sae.device))
    return saved


def _write_results(folder: Path, settings: DemoSettings, metrics: dict[str, Metrics]) -> None:
    results = {
        "settings": {**asdict(settings), "out": str(settings.out)},
        "versions": _versions(),
        "held_out": {name: asdict(row) for name, row in metrics.items()},
    }
    text = json.dumps(results, indent=2) + "\n"
    Path(folder, "results.json").write_text(text, encoding="utf-8")


def _report(
    settings: DemoSettings,
    metrics: dict[str, Metrics],
    trained: Trained,
    saved: dict[str, SAE[Any]],
    held_out: TextActivations,
    tokenizer: Any,
) -> str:
    return report_html(
        metrics_table(metrics),
        histogram=cosine_distributions([inspect_sae(sae, name) for name, sae in saved.items()]),
        curves=training_curves(trained.histories),
        pairs=pairs_in_context(
            saved[PLAIN], saved[REGULARIZED], held_out, tokenizer, most=PAIRS_SHOWN
        ),
        folder=str(settings.out / REGULARIZED),
        provenance=_provenance(settings),
    )


def _provenance(settings: DemoSettings) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in _versions().items())
    return (
        f"Made by sae-lens-c2r demo --tokens {settings.tokens} --d-sae {settings.d_sae} "
        f"--k {settings.k} --c2r-coefficient {settings.c2r_coefficient:g} "
        f"--seed {settings.seed}, with {versions}."
    )


def _versions() -> dict[str, str]:
    packages = ("sae-lens-c2r", "sae-lens", "torch", "transformers")
    return {"Python": platform.python_version()} | {name: version(name) for name in packages}


def _say_where_everything_is(out: Path, console: Console) -> None:
    lines = [
        f"\nReport:  {out / 'report.html'}",
        f"Numbers: {out / 'results.json'}",
        f"SAEs:    {out / PLAIN}",
        f"         {out / REGULARIZED}",
        "Load one, with SAELens alone:",
        f"  from sae_lens import SAE; sae = SAE.load_from_disk({str(out / REGULARIZED)!r})",
    ]
    # A path is to be copied: neither read as markup nor wrapped.
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Leave out warnings that do not concern the demo's user: what they tell is intended.

    MiniLM has no language-model head, and the data is handed over, not named.
    """
    sae_lens_logger, verbosity = (
        logging.getLogger("sae_lens"),
        transformers.logging.get_verbosity(),
    )
    level = sae_lens_logger.level
    transformers.logging.set_verbosity(logging.ERROR)
    sae_lens_logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, module="sae_lens")
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        sae_lens_logger.setLevel(level)
