"""A penalty of every T-th step: when it is applied, and what every log shows of it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from sae_lens.saes.sae import TrainStepInput
from torch import Tensor


@dataclass(frozen=True)
class Measured:
    """A penalty at one step."""

    penalty: Tensor  # as in its equation, without a coefficient
    scale: Tensor | float  # what the coefficient is multiplied by to transfer
    mean_max_cosine: Tensor  # of the latents with their neighbours in the chunk


@dataclass
class PeriodicPenalty:
    """Eq. (26) of the paper: at every T-th step a loss T times as large.

    Args:
        name: Prefix of the loss and the metrics, and name of the coefficient.
        interval: T.
        start_step: Steps before it have a coefficient of 0.
    """

    name: str
    interval: int
    start_step: int = 0
    metrics: dict[str, Tensor | float] = field(default_factory=dict, init=False)

    def losses(
        self, step_input: TrainStepInput, measure: Callable[[], Measured]
    ) -> dict[str, Tensor]:
        """The loss of a step, if it has one, while `metrics` keeps the last values.

        A coefficient of 0 only measures the penalty, so that the losses, and with them the
        weights, stay the backbone's to the bit.

        Args:
            step_input: What SAELens gives to every step.
            measure: Evaluates the penalty; gradients are enabled if they are wanted.

        Returns:
            `{name}_loss` = T * coefficient * scale * penalty, or nothing.
        """
        step = step_input.n_training_steps
        due = step % self.interval == 0
        # SAELens may never log a step that has a penalty, hence the last values; a run
        # resumed between two such steps has none at its first log, and measures.
        if not due and not (step_input.is_logging_step and not self.metrics):
            return {}
        coefficient = step_input.coefficients[self.name] if step >= self.start_step else 0.0
        applied = due and coefficient > 0
        with torch.set_grad_enabled(applied and torch.is_grad_enabled()):
            measured = measure()
        effective = coefficient * measured.scale
        self.metrics = {
            f"{self.name}_penalty": measured.penalty.detach(),
            f"{self.name}_effective_coefficient": effective,
            f"{self.name}_mean_max_cosine": measured.mean_max_cosine,
        }
        if not applied:
            return {}
        return {f"{self.name}_loss": self.interval * effective * measured.penalty}
