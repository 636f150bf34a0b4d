"""What the trainings looked like: recorded step by step, and drawn."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from matplotlib.figure import Figure
from sae_lens import TrainingSAE
from sae_lens.saes.sae import TrainStepOutput
from sae_lens.training.sae_trainer import SAETrainer
from torch import Tensor

from sae_lens_c2r.analysis import composition
from sae_lens_c2r.reporting.figures import color_of, svg

RECORD_EVERY = 10  # steps


@dataclass
class History:
    """The training of one SAE.

    Args:
        sae: What is trained.
        steps: At which its curves have a point.
        explained_variance: At each of these, of the training batch.
        composition: At each of these.
        seconds: Time of its own steps, without the language model's; the first, which also
            warms up, counts only where there is no other.
        tokens: What it was trained on in that time.
    """

    sae: TrainingSAE[Any]
    steps: list[int] = field(default_factory=list)
    explained_variance: list[float] = field(default_factory=list)
    composition: list[float] = field(default_factory=list)
    seconds: float = 0.0
    tokens: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Speed of the SAE's own steps."""
        return self.tokens / self.seconds

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
