"""The training loop: SAELens's `MultiSAETrainer.fit`, to the bit, for runs that are long.

Beside SAELens's steps it saves and stops between two of them, continues where another run was
stopped, lets k fall, and estimates the scale of the activations once for all SAEs.
"""

import copy
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import tee
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from sae_lens import TrainingSAE
from sae_lens.config import SAETrainerConfig
from sae_lens.saes.sae import TrainStepOutput
from sae_lens.training.activation_scaler import ActivationScaler
from sae_lens.training.multi_sae_trainer import MultiSAEEvaluatorProtocol, MultiSAETrainer
from sae_lens.training.sae_trainer import SAETrainer
from torch import Tensor
from torch.distributed import ProcessGroup
from tqdm.auto import tqdm

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.process import Interrupted, StopRequest
from sae_lens_c2r.architectures.penalized import PenalizedMixin
from sae_lens_c2r.saes.sae_ref import fold_scaling
from sae_lens_c2r.saes.start_from import ESTIMATED, NEEDS_ESTIMATE, scale_inputs
from sae_lens_c2r.training.data_parallel import DataParallelTrainer
from sae_lens_c2r.training.distributed import all_reduce_max, world_size
from sae_lens_c2r.training.output_dir import Checkpoint, Checkpoints
from sae_lens_c2r.training.stream import Batch

PENALTIES = "c2r_penalties.pt"
PROGRESS_EVERY = 10  # steps
GO_ON, SAVE, STOP = range(3)  # what a process wishes before a step; the largest is done


@dataclass
class Job:
    """The parts of a training beside SAELens's steps."""

    checkpoints: Checkpoints
    stop: StopRequest
    every_seconds: float = 0.0  # it saves; 0 for only at the end
    about: Mapping[str, Any] = field(default_factory=dict)  # kept with each checkpoint
    resumed: Checkpoint | None = None
    saved: Collection[str] = ()  # the SAEs that this process saves
    log: Callable[[str], None] = print
    scaled: Collection[str] = ()  # those that start from others, whose inputs were not scaled
    k_anneal_steps: Mapping[str, int] = field(default_factory=dict)
    process_group: ProcessGroup | None = None  # that every batch is split over, if it is
    begun: float = field(default_factory=time.monotonic)  # anew at the first step
    ended: float | None = None  # behind the last one

    @property
    def seconds(self) -> float:
        """Time of training, that of earlier processes included."""
        before = self.resumed.about["seconds"] if self.resumed else 0.0
        return float(before + (self.ended or time.monotonic()) - self.begun)


class Trainer(MultiSAETrainer):
    """SAELens's trainer of several SAEs of one stream, for a job that may be interrupted."""

    def __init__(
        self,
        cfg: SAETrainerConfig,
        saes: dict[str, TrainingSAE[Any]],
        hook: str,
        batches: Iterator[Batch],
        job: Job,
        *,
        evaluator: MultiSAEEvaluatorProtocol | None = None,
        stream_state: Callable[[int], dict[str, Any]] = lambda n: {"n_batches": n},
    ) -> None:
        super().__init__(cfg, saes, dict.fromkeys(saes, hook), batches, evaluator)
        self._hook, self._job, self._stream_state = hook, job, stream_state
        self._n_batches = 0  # that were taken from the stream
        group = job.process_group
        if group is not None:
            for sae_id, each in self.trainers.items():
                self.trainers[sae_id] = DataParallelTrainer(
                    cfg=each.cfg, sae=each.sae, data_provider=iter(()), process_group=group
                )

    def fit(self) -> dict[str, TrainingSAE[Any]]:
        """Train to the end, from the beginning or from where the job continues."""
        for sae in self.saes.values():
            sae.to(self.cfg.device)
        if self._job.resumed is not None:
            self.load_checkpoint(self._job.resumed.folder)
            self._n_batches = self._job.resumed.about["stream"]["n_batches"]
        self._saved_at = self._job.begun = time.monotonic()
        self._job.stop.deferrable = True

        n_samples = self.cfg.total_training_samples
        with tqdm(total=n_samples, initial=self.n_training_samples, desc="Training") as bar:
            self._estimate_scaling_factors()
            while self.n_training_samples < n_samples:
                with self._keeping_what_is_done():
                    self._save_or_stop()
                    self._maybe_log_sparsity()
                    batch = self._next_batch()
                outputs = {sae_id: self._step(sae_id, batch) for sae_id in self.trainers}
                self.n_training_samples += len(batch)
                with self._keeping_what_is_done():
                    try:
                        if self.cfg.logger.log_to_wandb:
                            self._log_train_step(outputs)
                            self._run_and_log_evals()
                    finally:
                        for trainer in self.trainers.values():
                            trainer.n_training_steps += 1
                        self.n_training_steps += 1
                self._show_progress(bar, outputs)
        self._job.ended = time.monotonic()
        self._write_checkpoint()
        self._job.stop.deferrable = False  # what follows begins again from this checkpoint
        if number := all_reduce_max(self._job.stop.received):
            raise Interrupted(number)
        self._maybe_log_sparsity(final=True)
        for trainer in self.trainers.values():
            fold_scaling(trainer.sae, trainer.activation_scaler)
            trainer.activation_scaler = ActivationScaler()
            trainer.set_final_sae_metadata()
        return self.saes

    @contextmanager
    def _keeping_what_is_done(self) -> Iterator[None]:
        """Leave a checkpoint where something fails between two steps."""
        try:
            yield
        except Exception as error:
            # The others of several processes may know nothing of it, unless it is of the text.
            if world_size() == 1 or isinstance(error, UserError):
                with suppress(UserError):  # of weights that are not finite, which are not kept
                    self._write_checkpoint()
            raise

    def _batches_until_stopped(self, n: int) -> Iterator[Tensor]:
        for _ in range(n):
            self._save_or_stop()
            yield self._next_batch()

    def _next_batch(self) -> Tensor:
        batch = next(self.data_provider)[self._hook]
        self._n_batches += 1
        return batch

    def _step(self, sae_id: str, batch: Tensor) -> TrainStepOutput:
        trainer = self.trainers[sae_id]
        if sae_id not in self._job.k_anneal_steps:
            return trainer.step(batch)
        activation: Any = trainer.sae.activation_fn
        final, steps = activation.k, self._job.k_anneal_steps[sae_id]
        activation.k = k_at(self.n_training_steps, trainer.sae.cfg, steps)
        output = trainer.step(batch)
        activation.k = final  # that of what is evaluated between two steps
        return output

    @torch.no_grad()
    def _estimate_scaling_factors(self) -> None:
        """Estimate, once for all SAEs of a mode, how SAELens scales their activations."""
        trainers = self.trainers.items()
        new = [
            (i, each) for i, each in trainers if each.activation_scaler == ActivationScaler()
        ]
        modes = sorted({each.sae.cfg.normalize_activations for _, each in new} & NEEDS_ESTIMATE)
        n = self.cfg.n_batches_for_norm_estimate
        # SAELens keeps the batches for each SAE to go through: 19 GB in the paper's release.
        of_modes = tee(self._batches_until_stopped(n), len(modes))
        for mode, batches in zip(modes, of_modes, strict=True):
            scaler, of_norm = ActivationScaler(), mode == ESTIMATED
            estimate = scaler.estimate_scaling_factor if of_norm else scaler.estimate_whitening
            estimate(next(iter(self.saes.values())).cfg.d_in, batches, n)
            for sae_id, trainer in new:
                if trainer.sae.cfg.normalize_activations == mode:
                    trainer.activation_scaler = copy.copy(scaler)
                    if sae_id in self._job.scaled and scaler.scaling_factor is not None:
                        scale_inputs(trainer.sae, scaler.scaling_factor)
                        _scale_config(trainer)

    def _show_progress(self, bar: Any, outputs: dict[str, TrainStepOutput]) -> None:
        # SAELens moves its bar every 100 steps, and from 0 in a run that is resumed.
        if self.n_training_steps % PROGRESS_EVERY == 0:
            losses = {sae_id: output.loss.item() for sae_id, output in outputs.items()}
            shown = " | ".join(f"{sae_id}: {loss:.4f}" for sae_id, loss in losses.items())
            bar.set_description(f"{self.n_training_steps}| {shown}", refresh=False)
            bar.update(self.n_training_samples - bar.n)
            for sae_id in (each for each, loss in losses.items() if not isfinite(loss)):
                self._check_finite(sae_id)

    def _check_finite(self, sae_id: str) -> None:
        """Raise a UserError unless all weights of an SAE are finite."""
        for name, weight in self.trainers[sae_id].sae.state_dict().items():
            if not weight.isfinite().all():
                found = f"NaN or infinity after {self.n_training_steps:,} steps"
                advice = "Try a lower `runner.lr`, or `sae.dtype` float32 if it is another one."
                raise UserError(name, "stay finite", found, advice, of=sae_id)

    def _save_or_stop(self) -> None:
        """Write a checkpoint if one is due; and end, if any process was told to."""
        seconds = time.monotonic() - self._saved_at
        wish = SAVE if seconds >= self._job.every_seconds > 0 else GO_ON
        decided = all_reduce_max(STOP if self._job.stop.received else wish)
        if decided >= SAVE:
            self._write_checkpoint()
            self._saved_at = time.monotonic()
        if decided == STOP:
            raise Interrupted(all_reduce_max(self._job.stop.received))

    def _write_checkpoint(self) -> None:
        """Write one, unless there is one of this step."""
        job, step = self._job, self.n_training_steps
        if step == (job.resumed.step if job.resumed else 0):
            return

        def fill(folder: Path) -> list[Path]:
            for sae_id in job.saved:
                self._check_finite(sae_id)  # or the last good checkpoint would soon be gone
                trainer, own = self.trainers[sae_id], folder / sae_id
                trainer.sae.save_model(own)
                trainer.save_trainer_state(own)
                if isinstance(trainer.sae, PenalizedMixin):
                    torch.save(trainer.sae.penalty_metrics, own / PENALTIES)
            return [folder / sae_id for sae_id in job.saved]

        now = {"seconds": job.seconds, "stream": self._stream_state(self._n_batches)}
        try:
            job.checkpoints.write(step, {**job.about, **now}, fill)
        except OSError as error:  # no reason to stop: there may be room again next time
            job.log(f"No checkpoint was written at step {step:,}. {error}")

    def load_checkpoint(self, path: str | Path) -> None:
        """Restore what SAELens's checkpoints have, and what they leave out."""
        super().load_checkpoint(path)
        for sae_id, trainer in self.trainers.items():
            sae = trainer.sae
            if isinstance(sae, PenalizedMixin):
                place, device = Path(path) / sae_id / PENALTIES, sae.W_dec.device
                metrics = torch.load(place, map_location=device, weights_only=True)
                sae.penalty_metrics = metrics
            if sae_id in self._job.scaled:  # the weights were saved as scaled ones
                _scale_config(trainer)


def _scale_config(trainer: SAETrainer[Any, Any]) -> None:
    """Scale what Matching Pursuit compares residuals with, which is no weight."""
    factor = trainer.activation_scaler.scaling_factor
    if factor is not None and hasattr(trainer.sae.cfg, "residual_threshold"):
        trainer.sae.cfg.residual_threshold *= factor


def k_at(step: int, config: Any, steps: int) -> float:
    """The k of a step: it falls linearly, in whole numbers, from the size of the inputs."""
    first = min(config.d_in, config.d_sae)
    if step >= steps or first <= config.k:
        return config.k
    return max(round(first + (config.k - first) * step / steps), config.k)
