"""SAELens's loop over steps, for SAEs that share a stream with those of other processes."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

from sae_lens import TrainingSAE
from sae_lens.training import activation_scaler, multi_sae_trainer
from sae_lens.training.activation_scaler import ActivationScaler
from sae_lens.training.multi_sae_trainer import MultiSAETrainer
from sae_lens.training.sae_trainer import SAETrainer
from torch import Tensor
from tqdm.auto import tqdm

from sae_lens_c2r.training.joined_trainer import split_batches
from sae_lens_c2r.training.long_run import LongRun, Stream

PROGRESS_EVERY = 10


def fit(
    trainer: MultiSAETrainer, long_run: LongRun, stream: Stream
) -> dict[str, TrainingSAE[Any]]:
    """Have SAELens train to the end, from where the run continues.

    Args:
        trainer: SAELens's trainer, which has not begun.
        long_run: What saves and resumes it.
        stream: What it is given.

    Returns:
        The SAEs by their ids.
    """
    long_run.attach(trainer.trainers, stream)
    first = next(iter(trainer.trainers.values()))
    trainer.n_training_steps = first.n_training_steps
    trainer.n_training_samples = first.n_training_samples
    move_bar = trainer._update_pbar
    estimate = trainer._estimate_scaling_factors

    def move_bar_to_sample(outputs: Any, bar: Any) -> None:
        # SAELens moves it every 100 steps, and from 0 in a run that is resumed.
        move_bar(outputs, bar, update_interval=PROGRESS_EVERY)
        if trainer.n_training_steps % PROGRESS_EVERY == 0:
            bar.n = trainer.n_training_samples
            bar.refresh()

    def estimate_once() -> None:
        new = {
            sae_id: each
            for sae_id, each in trainer.trainers.items()
            if each.activation_scaler == ActivationScaler()
        }
        _estimate_once(trainer, list(new.values()))
        estimate()  # what that has left
        for sae_id, each in new.items():
            long_run.starts.factor_is_estimated(sae_id, each)

    trainer._update_pbar = move_bar_to_sample  # type: ignore[method-assign, assignment]
    trainer._estimate_scaling_factors = estimate_once  # type: ignore[method-assign]
    if long_run.batch_group is not None:
        for each in trainer.trainers.values():
            split_batches(each, long_run.batch_group)
    bars = nullcontext() if long_run.ranks.is_first else _without_bars()
    with bars, long_run.ranks.naming_who_ended():
        return trainer.fit()


@contextmanager
def _without_bars() -> Iterator[None]:
    bar = partial(tqdm, disable=True)
    with (
        patch.object(multi_sae_trainer, "tqdm", bar),
        patch.object(activation_scaler, "tqdm", bar),
    ):
        yield


def _estimate_once(trainer: MultiSAETrainer, new: list[SAETrainer[Any, Any]]) -> None:
    """Estimate, for all SAEs at once, what they scale the stream's activations by.

    SAELens keeps the batches for each SAE to go through: 19 GB in the paper's main release.
    SAEs that see the same batches come to the same, so they are gone through once.
    """
    modes = {each.sae.cfg.normalize_activations for each in new}
    if modes != {"expected_average_only_in"}:
        return  # whitening, or nothing at all: SAELens does that
    first, *others = new
    [hook] = set(trainer.hook_names.values())
    batches: Iterator[Tensor] = (batch[hook] for batch in trainer.data_provider)
    first.activation_scaler.estimate_scaling_factor(
        d_in=first.sae.cfg.d_in,
        data_provider=batches,
        n_batches_for_norm_estimate=trainer.cfg.n_batches_for_norm_estimate,
    )
    for each in others:
        each.activation_scaler.scaling_factor = first.activation_scaler.scaling_factor
