"""The demo from end to end: a release is trained, proved to load, and compared."""

import logging
import platform
import shlex
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from datasets import Dataset
from matplotlib.figure import Figure
from rich.console import Console
from sae_lens import SAE, TrainingSAE
from sae_lens.saes.sae import TrainStepOutput
from sae_lens.training.sae_trainer import SAETrainer
from torch import Tensor
from transformers import AutoTokenizer

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import read_object, write_json, write_text
from sae_lens_c2r._support.libraries import package_versions
from sae_lens_c2r._support.process import stop_requests
from sae_lens_c2r.analysis import composition
from sae_lens_c2r.inspection.activations import ActivationSource
from sae_lens_c2r.inspection.comparison import Comparison, compare
from sae_lens_c2r.inspection.measures import SAEReport, measure
from sae_lens_c2r.inspection.report import in_terminal, report_html
from sae_lens_c2r.offline import corpus
from sae_lens_c2r.offline.minilm import CONTEXT_SIZE, model_folder
from sae_lens_c2r.releases.files import read_release
from sae_lens_c2r.releases.model import Release
from sae_lens_c2r.reporting.figures import color_of, svg
from sae_lens_c2r.saes.encoding import (
    contributions,
    encode_in_saelens_alone,
    encodes_alike,
    trained_contributions,
)
from sae_lens_c2r.training.plan import Plan, make_plan
from sae_lens_c2r.training.record import RECORD
from sae_lens_c2r.training.train import train

PLAIN, REGULARIZED = "batchtopk", "batchtopk_c2r"
HELD_OUT_SHARE = 0.1
RECORD_EVERY = 10  # steps
_COMPARED_TOKENS = 64
_INTRO = (
    "Two sparse autoencoders of all-MiniLM-L6-v2, after its fourth block, trained from the "
    f"same weights on the same activations in the same order: SAELens's {PLAIN}, and "
    f"{REGULARIZED}, which adds the C2R penalty. The text is Python's own documentation. All "
    "numbers and tokens in context are from documents that neither saw in training."
)


@dataclass(frozen=True)
class DemoOptions:
    """The options of `sae-lens-c2r demo`."""

    out: Path
    tokens: int = 400_000
    d_sae: int = 4096
    k: int = 32
    c2r_coefficient: float = 5.0
    seed: int = 0
    device: str = "cpu"
    overwrite: bool = False


@dataclass
class History:
    """The training of one SAE: its curves, of the training batches, and its speed.

    The time is that of its own steps, without the language model's. The first, which also
    warms up, counts only where there is no other.
    """

    sae: TrainingSAE[Any]
    steps: list[int] = field(default_factory=list)
    explained_variance: list[float] = field(default_factory=list)
    composition: list[float] = field(default_factory=list)
    seconds: float = 0.0
    tokens: int = 0

    def speed(self) -> dict[str, float]:
        """Tokens per second of the SAE's own steps."""
        return {"tokens_per_second": self.tokens / self.seconds}

    @torch.no_grad()
    def add(self, step: int, output: TrainStepOutput) -> None:
        """Add a point to the curves."""
        residual = (output.sae_in - output.sae_out).pow(2).sum()
        total = (output.sae_in - output.sae_in.mean(dim=0)).pow(2).sum()
        self.steps.append(step)
        self.explained_variance.append(1 - (residual / total).item())
        self.composition.append(composition(self.sae.W_dec))


def record(histories: dict[str, History], sae_id: str, trainer: SAETrainer[Any, Any]) -> None:
    """Have every step of a training recorded: SAELens itself logs to wandb only."""
    history = histories[sae_id] = History(trainer.sae)
    step = trainer.step

    def recorded_step(batch: Tensor) -> TrainStepOutput:
        _wait_for(batch.device)
        start = time.perf_counter()
        output = step(batch)
        _wait_for(batch.device)
        if trainer.n_training_steps == 1:
            history.seconds, history.tokens = 0.0, 0
        history.seconds += time.perf_counter() - start
        history.tokens += len(batch)
        if trainer.n_training_steps % RECORD_EVERY == 0:
            history.add(trainer.n_training_steps, output)
        return output

    trainer.step = recorded_step  # type: ignore[method-assign]


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def training_curves(histories: Mapping[str, History]) -> str:
    """Explained variance and composition over the steps of each training, as SVG."""
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, (name, history) in enumerate(histories.items()):
        color = color_of(number)
        left.plot(history.steps, history.explained_variance, color=color, label=name)
        right.plot(history.steps, history.composition, color=color, label=name)
    left.set(ylim=(0, 1), xlabel="step", title="explained variance (training batch)")
    right.set(ylim=(0, None), xlabel="step", title="composition")
    left.legend(frameon=False, loc="lower right")
    return svg(figure)


def demo_release(options: DemoOptions) -> Release:
    """BatchTopK with and without C2R, from the same weights on the same activations."""
    changes = {
        "language_model.training_tokens": options.tokens,
        "runner.seed": options.seed,
        "sae.d_sae": options.d_sae,
        "sae.k": options.k,
        "sae.seed": options.seed,
        "sae.c2r_coefficient": options.c2r_coefficient,
        "sae.c2r_seed": options.seed,
    }
    path = Path(str(files("sae_lens_c2r.demo").joinpath("minilm-demo.yaml")))
    return read_release(path, overrides=changes)


def run_demo(options: DemoOptions, console: Console) -> None:
    """Train both SAEs, save, reload and measure them, and write the report."""
    # Everything is written beside `out` first: it never holds half a result.
    beside = next(folder for folder in options.out.absolute().parents if folder.is_dir())
    with (
        stop_requests() as request,
        quiet_libraries(),
        TemporaryDirectory(prefix=f".{options.out.name}-", dir=beside) as scratch,
    ):
        plan = make_plan(demo_release(options), device=options.device)
        reports, comparison = _run(options, plan, Path(scratch), console)
        request.deferrable = True  # what was begun to be moved is moved
        _move_into(options.out, Path(scratch))
    console.print("Measured on held-out text")
    console.print(*in_terminal(reports, [comparison], width=console.width), sep="\n")
    _say_where_everything_is(options.out, options.tokens, console)


def _run(
    options: DemoOptions, plan: Plan, folder: Path, console: Console
) -> tuple[list[SAEReport], Comparison]:
    """Do all of it in a folder."""
    rows, held_out = _rows(options.seed, console)
    console.print(f"Training {PLAIN} and {REGULARIZED}, {options.tokens:,} tokens ...")
    histories = _train(replace(plan, dataset=rows), folder)
    saes: dict[str, SAE[Any]] = {
        name: SAE.load_from_disk(folder / name, device=options.device) for name in histories
    }
    n_tokens = len(held_out) * CONTEXT_SIZE
    source = ActivationSource(
        held_out,
        model=None,
        n_tokens=n_tokens,
        device=options.device,
        named=corpus.OFFLINE_DATASET,
    )
    text = source.activations(saes[PLAIN], PLAIN)
    _check_saved(folder, saes, histories, text.activations[:_COMPARED_TOKENS])
    for name in saes:
        console.print(
            f"Saved {name}; a process without sae_lens_c2r loads it and encodes alike."
        )
    console.print("Measuring on the held-out text ...")
    plain, regularized = (
        replace(measure(sae, name, text), of_training=histories[name].speed())
        for name, sae in saes.items()
    )
    reports = [plain, regularized]
    comparison = compare(saes[PLAIN], saes[REGULARIZED], text, reports=(plain, regularized))
    for report in reports:
        _record_held_out(folder / report.name / RECORD, report)
    write_json(folder / "results.json", _results(options, reports, comparison))
    html = report_html(
        reports,
        [comparison],
        made_by=f"sae-lens-c2r demo --tokens {options.tokens} --d-sae {options.d_sae} "
        f"--k {options.k} --c2r-coefficient {options.c2r_coefficient:g} --seed {options.seed}",
        title="What C2R did to an SAE",
        intro=_INTRO,
        curves=training_curves(histories),
        load=str(options.out / REGULARIZED),
    )
    write_text(folder / "report.html", html)
    return reports, comparison


def _rows(seed: int, console: Console) -> list[Dataset]:
    """Python's documentation in rows of tokens: to train on, and held out by the document."""
    tokenizer = AutoTokenizer.from_pretrained(model_folder())
    console.print("Reading Python's documentation ...")
    parts = corpus.split(corpus.documents(), held_out_share=HELD_OUT_SHARE, seed=seed)
    rows = [corpus.token_rows(texts, tokenizer) for texts in parts]
    console.print(
        f"{len(parts[0]):,} documents to train on ({rows[0].numel():,} tokens), "
        f"{len(parts[1]):,} held out ({rows[1].numel():,} tokens)."
    )
    return [Dataset.from_dict({"tokens": part.tolist()}) for part in rows]


def _train(plan: Plan, folder: Path) -> dict[str, History]:
    histories: dict[str, History] = {}
    try:
        train(plan, folder, checkpoint_minutes=0, watch=partial(record, histories))
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


def _record_held_out(path: Path, report: SAEReport) -> None:
    """Add what was measured to what training recorded: an SAE's card is made of that."""
    measured = ("explained_variance", "l0", "dead_latents", "co_firing.")
    metrics = {k: v for k, v in report.flat_metrics().items() if k.startswith(measured)}
    n_tokens = report.on_text.n_tokens if report.on_text else 0
    held_out = {"text": corpus.OFFLINE_DATASET, "n_tokens": n_tokens, "metrics": metrics}
    write_json(path, {**read_object(path), "held_out": held_out})


def _results(
    options: DemoOptions, reports: Sequence[SAEReport], comparison: Comparison
) -> dict[str, Any]:
    """The content of `results.json`."""
    packages = package_versions("sae-lens-c2r", "sae-lens", "torch", "transformers")
    return {
        "settings": {**asdict(options), "out": str(options.out)},
        "versions": {"Python": platform.python_version(), **packages},
        "held_out": {report.name: report.metrics() for report in reports},
        **comparison.summary(),
    }


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
        f"  sae-lens-c2r finetune {shlex.quote(str(out / PLAIN))} --tokens {tokens // 2}",
    ]
    # A path is to be copied: neither read as markup nor wrapped.
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Leave out warnings that do not concern the demo's user: what they tell is intended.

    MiniLM has no language-model head, and the data is handed over, not named.
    """
    logger, verbosity = logging.getLogger("sae_lens"), transformers.logging.get_verbosity()
    level = logger.level
    transformers.logging.set_verbosity(logging.ERROR)
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, module="sae_lens")
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        logger.setLevel(level)
