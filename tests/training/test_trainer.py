"""The training loop: SAELens's own, to the bit, wherever it is stopped and continued."""

import copy
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sae_lens import (
    LoggingConfig,
    MultiSAETrainingRunner,
    MultiSAETrainingRunnerConfig,
    SAETrainer,
    TrainingSAE,
)
from sae_lens.saes.batchtopk_sae import BatchTopKTrainingSAEConfig
from sae_lens.training.multi_sae_trainer import MultiSAETrainer
from torch import Tensor

from sae_lens_c2r._support.process import StopRequest
from sae_lens_c2r.releases.files import read_release
from sae_lens_c2r.training.output_dir import Checkpoint, Checkpoints
from sae_lens_c2r.training.plan import make_plan
from sae_lens_c2r.training.runners import train_on_language_model, wandb_run
from sae_lens_c2r.training.stream import Batch
from sae_lens_c2r.training.train import train as train_release
from sae_lens_c2r.training.trainer import Job, Trainer, k_at
from tests.architectures.training import BATCH, D_IN, make_config, make_sae, make_trainer
from tests.language_model import D_MODEL, HOOK, rows_of_tokens, tiny_model
from tests.releases.test_files import write
from tests.strategies import ARCHITECTURES
from tests.training.test_modes import SHORT

NORM, WHITENING = "expected_average_only_in", "covariance_whitening"
STEPS, WINDOW = 20, 6


def batches(
    first: int = 0, stop: StopRequest | None = None, stop_after: int | None = None
) -> Iterator[Batch]:
    """Batches by their numbers; the process is told to end when so many were asked for."""
    for number in count(first):
        if stop is not None and number + 1 == stop_after:
            stop.received = True
        yield {HOOK: torch.randn(BATCH, D_IN, generator=torch.Generator().manual_seed(number))}


def settings(sae: TrainingSAE[Any], **options: Any) -> Any:
    """SAELens's config of a short training in which everything happens."""
    options = {
        "dead_feature_window": 3,
        "feature_sampling_window": WINDOW,
        "lr_warm_up_steps": 4,
        "lr_decay_steps": 5,
        **options,
    }
    return make_trainer(sae, STEPS, iter(()), **options).cfg


@pytest.mark.parametrize("logs", [True, False])
@pytest.mark.parametrize(
    "modes", [(NORM, NORM), (WHITENING, WHITENING), (NORM, WHITENING), ("none", "none")]
)
def test_it_trains_and_logs_as_sae_lens_does(
    modes: tuple[str, str], logs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[tuple[dict[str, Any], int]] = []

    def log(values: dict[str, Any], step: int) -> None:
        numbers = {name: each for name, each in values.items() if isinstance(each, float | int)}
        logged.append((numbers, step))

    monkeypatch.setattr("sae_lens.training.multi_sae_trainer.wandb.log", log)
    logger = LoggingConfig(log_to_wandb=logs, wandb_log_frequency=2, eval_every_n_wandb_logs=2)
    evaluate = lambda **_: {"evaluated": 1}  # noqa: E731
    found = []
    for ours in (False, True):
        saes: dict[str, TrainingSAE[Any]] = {
            str(i): make_sae("batchtopk_c2r", seed=i, normalize_activations=mode)
            for i, mode in enumerate(modes)
        }
        cfg = settings(saes["0"], logger=logger)
        trainer = MultiSAETrainer(cfg, saes, dict.fromkeys(saes, HOOK), batches(), evaluate)
        if ours:
            job = Job(Checkpoints(tmp_path), StopRequest())
            trainer = Trainer(cfg, saes, HOOK, batches(), job, evaluator=evaluate)
        trained = trainer.fit()
        assert (trainer.n_training_steps, trainer.n_training_samples) == (STEPS, STEPS * BATCH)
        found.append([(sae.state_dict(), sae.cfg.metadata.l0) for sae in trained.values()])
    for (theirs_state, theirs_l0), (state, l0) in zip(*found, strict=True):
        assert all(torch.equal(state[name], each) for name, each in theirs_state.items())
        assert l0 == theirs_l0
    half = len(logged) // 2
    assert logged[:half] == logged[half:]
    assert any("evaluated" in values for values, _ in logged) == logs


@pytest.mark.filterwarnings("ignore")  # SAELens's, of so small a dataset
def test_what_evaluations_read_is_not_missing_from_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))

    def train(logger: LoggingConfig) -> Tensor:
        cfg = MultiSAETrainingRunnerConfig(
            saes={"sae": make_config("batchtopk_c2r", d_in=D_MODEL, d_sae=32, k=4)},
            prefetch_llm_batches=2,
            logger=logger,
            **SHORT,
        )
        model = tiny_model()  # drawn at random when it is first asked for
        torch.manual_seed(0)
        runner = MultiSAETrainingRunner(
            cfg, override_dataset=rows_of_tokens(), override_model=model
        )
        job = Job(Checkpoints(tmp_path), StopRequest())
        with wandb_run(cfg, runner.saes, group="tests"):
            return train_on_language_model(runner, job)["sae"].W_dec

    logged = LoggingConfig(wandb_log_frequency=1, eval_every_n_wandb_logs=2)
    assert torch.equal(train(logged), train(LoggingConfig(log_to_wandb=False)))


def run(
    sae: TrainingSAE[Any],
    folder: Path,
    *,
    resumed: Checkpoint | None = None,
    stop_after: int | None = None,
) -> bool:
    """Train, and say whether it came to the end."""
    stop = StopRequest()
    job = Job(Checkpoints(folder), stop, resumed=resumed, saved=["sae"])
    first = resumed.about["stream"]["n_batches"] if resumed else 0
    stream = batches(first, stop, stop_after)
    try:
        Trainer(settings(sae), {"sae": sae}, HOOK, stream, job).fit()
    except KeyboardInterrupt:
        return False
    return True


@pytest.mark.filterwarnings("ignore:WARNING. You have only set one matryoshka level")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_continued_it_ends_with_the_weights_of_an_untouched_run(
    architecture: str, tmp_path: Path
) -> None:
    penalty = "ort" if architecture == "ort" else "c2r"
    options = {
        "normalize_activations": NORM,
        f"{penalty}_interval": 2,
        f"{penalty}_chunk_size": 20,
        f"{penalty}_warm_up_steps": 9,
    }
    untouched = make_sae(architecture, **copy.deepcopy(options))
    assert run(untouched, tmp_path / "untouched")
    n_estimate = 4  # batches that SAELens takes to estimate the norm
    for stop_at in (1, 3, WINDOW, 13):
        folder = tmp_path / str(stop_at)
        sae = make_sae(architecture, **copy.deepcopy(options))
        assert not run(sae, folder, stop_after=n_estimate + stop_at)
        resumed = Checkpoints(folder).newest(on_damage=pytest.fail)
        assert resumed.step == stop_at
        sae = make_sae(architecture, seed=1, **copy.deepcopy(options))
        assert run(sae, folder, resumed=resumed)
        for name, tensor in untouched.state_dict().items():
            assert torch.equal(sae.state_dict()[name], tensor), name
        assert sae.cfg.metadata.l0 == untouched.cfg.metadata.l0


def test_an_estimate_is_not_finished_before_a_training_stops(tmp_path: Path) -> None:
    sae = make_sae("batchtopk_c2r", normalize_activations=NORM)
    stop = StopRequest()
    job = Job(Checkpoints(tmp_path), stop, saved=["sae"])
    given = batches(0, stop, 2)
    with pytest.raises(KeyboardInterrupt):
        Trainer(settings(sae), {"sae": sae}, HOOK, given, job).fit()
    assert torch.equal(next(given)[HOOK], next(batches(2))[HOOK])
    assert list(tmp_path.iterdir()) == []


ANNEALED = ["topk", "abstopk_c2r", "batchtopk_c2r", "ort", "matryoshka_batchtopk_c2r"]


@given(
    d_in=st.integers(1, 50),
    d_sae=st.integers(1, 50),
    k=st.floats(0.25, 50),
    steps=st.integers(0, 30),
)
def test_k_falls_from_the_size_of_the_inputs_to_what_it_is(
    d_in: int, d_sae: int, k: float, steps: int
) -> None:
    k = min(k, d_sae)
    config = BatchTopKTrainingSAEConfig(d_in=d_in, d_sae=d_sae, k=k)
    ks = [k_at(step, config, steps) for step in range(steps + 3)]
    assert ks[steps:] == [k] * 3
    assert all(before >= after for before, after in pairwise(ks))
    assert max(ks) <= d_sae
    assert all(isinstance(each, int) for each in ks[:steps] if each != k)
    if steps and min(d_in, d_sae) >= k:
        assert ks[0] == min(d_in, d_sae)


def test_each_step_has_its_k_in_a_resumed_run_too_and_between_steps_it_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sae = {
        **{"d_in": 8, "d_sae": 32, "k": 2, "k_anneal_steps": 6, "matryoshka_widths": [16, 32]},
        **{"c2r_interval": 2, "c2r_chunk_size": 20, "ort_interval": 2},
    }
    grids = [{"id": "{architecture}", "axes": {"architecture": ANNEALED}}]
    plan = make_plan(read_release(write(tmp_path, sae=sae, grids=grids)), device="cpu")
    ks: dict[str, list[float]] = {name: [] for name in ANNEALED}

    step = SAETrainer.step

    def train_to(last: int, *, resume: bool) -> list[Path]:
        trainers: dict[str, Any] = {}  # that have begun

        def note_and_step(trainer: SAETrainer[Any, Any], batch: Tensor) -> Any:
            sae_id = trainer.sae.cfg.architecture()
            trainers[sae_id] = trainer
            now = {name: each.sae.activation_fn.k for name, each in trainers.items()}
            if trainer.n_training_steps == last:
                raise KeyboardInterrupt
            ks[sae_id].append(now.pop(sae_id))
            assert set(now.values()) <= {2}
            return step(trainer, batch)

        monkeypatch.setattr(SAETrainer, "step", note_and_step)
        return train_release(plan, tmp_path / "saes", resume=resume, checkpoint_minutes=1e-9)

    with pytest.raises(KeyboardInterrupt):
        train_to(3, resume=False)
    assert len(train_to(10, resume=True)) == len(ANNEALED)
    assert all(each == [8, 7, 6, 5, 4, 3, 2, 2, 2, 2] for each in ks.values())
