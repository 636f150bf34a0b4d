"""A training of SAELens's that can end at any step and continue there, to the bit."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from sae_lens.training.sae_trainer import SAETrainer
from torch.distributed import ProcessGroup

from sae_lens_c2r._support.stopping import StopRequest
from sae_lens_c2r.architectures.penalized import PenalizedMixin
from sae_lens_c2r.training.checkpoint import Checkpoint, Checkpoints
from sae_lens_c2r.training.random_state import random_state, restore_random
from sae_lens_c2r.training.ranks import ALONE, Ranks
from sae_lens_c2r.training.scaled_starts import ScaledStarts

DATA = "data.pt"
PENALTIES = "c2r_penalties.pt"
Trainers = Mapping[str, SAETrainer[Any, Any]]
Watch = Callable[[str, SAETrainer[Any, Any]], None]
GO_ON, SAVE, STOP = range(3)  # what a process wishes before a step; the largest is done


class Stream(Protocol):
    """What trainers are given, as far as a checkpoint is concerned."""

    def state(self) -> dict[str, Any]:
        """Where it is."""


@dataclass
class LongRun:
    """Saves trainers between two steps: now and then, and when the process is told to end.

    Of each SAE it saves SAELens's own checkpoint and what its penalties carry from step to
    step; of the data, what SAELens's checkpoint leaves out (`ActivationStream`).

    Args:
        checkpoints: Where it saves.
        request: Whether the process was told to end.
        every_seconds: How often it saves, and again at the end, before what was trained is
            put into its final form; 0 for only when told to end.
        about: What to keep with each checkpoint, beside `seconds`, the time of training.
        resumed: The checkpoint to continue from, if any.
        tell: Shows the user a line.
        watch: Given each trainer before it begins, see `train`.
        ranks: The processes, which save and end together.
        saved: The SAEs that are this process's to save; `None` for all that it trains.
        starts: What SAEs start from that start from others.
        batch_group: The processes that every batch is split over; `None` for this one alone.
    """

    checkpoints: Checkpoints
    request: StopRequest
    every_seconds: float
    about: Mapping[str, Any]
    resumed: Checkpoint | None
    tell: Callable[[str], None]
    watch: Watch | None = None
    ranks: Ranks = ALONE
    saved: Sequence[str] | None = None
    starts: ScaledStarts = field(default_factory=ScaledStarts)
    batch_group: ProcessGroup | None = None

    def __post_init__(self) -> None:
        self._begun = self._saved = time.monotonic()
        self.data_state: dict[str, Any] | None = None
        if self.resumed is not None:
            self.data_state = torch.load(self.resumed.folder / DATA, map_location="cpu")

    @property
    def seconds(self) -> float:
        """Time of training, that of earlier processes included."""
        before = self.resumed.about["seconds"] if self.resumed else 0.0
        return float(before + time.monotonic() - self._begun)

    def attach(self, trainers: Trainers, stream: Stream | None = None) -> None:
        """Bring trainers to where the run continues, and have them saved from there on.

        Args:
            trainers: SAELens's trainers that are about to begin, by the ids of their SAEs.
            stream: What they are given, made of `data_state`; `None` for samples that depend
                on torch's random state alone, which is then restored here.
        """
        if self.resumed is not None:
            for sae_id, trainer in trainers.items():
                _load(trainer, self.resumed.folder / sae_id)
                self.starts.factor_is_loaded(sae_id, trainer)
            if stream is None and self.data_state is not None:
                restore_random(self.data_state["random"])
        if self.watch is not None:
            for sae_id, trainer in trainers.items():
                self.watch(sae_id, trainer)
        first = next(iter(trainers.values()))

        def between_two_steps() -> None:
            due = time.monotonic() - self._saved >= self.every_seconds > 0
            wish = STOP if self.request.received else SAVE if due else GO_ON
            decided = self.ranks.largest(wish)
            if decided >= SAVE:
                self._save(trainers, stream)
                self._saved = time.monotonic()
            if decided == STOP:
                raise KeyboardInterrupt

        def after_last_step() -> None:
            over = first.n_training_samples >= first.cfg.total_training_samples
            if over and self.every_seconds:
                self._save(trainers, stream)

        # The first thing that SAELens calls at a step, before anything of it has changed; and
        # the first thing that it calls after the last step.
        _call_before(first, "maybe_reset_sparsity", between_two_steps)
        _call_before(first, "full_sparsity_window_log", after_last_step)
        self._begun = self._saved = time.monotonic()
        self.request.deferrable = True

    def _save(self, trainers: Trainers, stream: Stream | None) -> None:
        step = next(iter(trainers.values())).n_training_steps
        if step == (self.resumed.step if self.resumed else 0):
            return  # nothing is new

        def fill(folder: Path) -> Iterator[Path]:
            for sae_id in trainers if self.saved is None else self.saved:
                _save(trainers[sae_id], folder / sae_id)
                yield folder / sae_id
            if self.ranks.is_first:
                state = stream.state() if stream else {"random": random_state()}
                torch.save(state, folder / DATA)
                yield folder / DATA

        try:
            about = {**self.about, "seconds": self.seconds}
            self.checkpoints.write(step, about, lambda folder: list(fill(folder)))
        except OSError as error:  # no reason to stop: there may be room again next time
            self.tell(f"There is no checkpoint of step {step:,}. {error}")


def _call_before(
    trainer: SAETrainer[Any, Any], method: str, action: Callable[[], None]
) -> None:
    theirs = getattr(trainer, method)

    def both() -> Any:
        action()
        return theirs()

    setattr(trainer, method, both)


def _save(trainer: SAETrainer[Any, Any], folder: Path) -> None:
    trainer.sae.save_model(folder)
    trainer.save_trainer_state(folder)
    if isinstance(trainer.sae, PenalizedMixin):
        torch.save(trainer.sae.penalty_state(), folder / PENALTIES)


def _load(trainer: SAETrainer[Any, Any], folder: Path) -> None:
    trainer.load_trainer_state(folder)
    trainer.sae.load_weights_from_checkpoint(folder)
    if isinstance(trainer.sae, PenalizedMixin):
        device = trainer.sae.W_dec.device
        trainer.sae.restore_penalties(torch.load(folder / PENALTIES, map_location=device))
