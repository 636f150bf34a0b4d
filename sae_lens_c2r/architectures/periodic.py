"""Penalties of every T-th step: when they are applied, and what every log shows of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from sae_lens.saes.sae import TrainCoefficientConfig, TrainStepInput
from torch import Tensor

from sae_lens_c2r._support.checks import check_chunk_size, check_integer, check_non_negative
from sae_lens_c2r.architectures.search import Found, Search

_SEARCH_FIELDS = ("chunk_size", "seed", "interval", "search_interval")  # as `Search` has them
_SCHEDULE_FIELDS = ("coefficient", "warm_up_steps", "start_step")


def _fields(cfg: Any, name: str) -> dict[str, Any]:
    names = (*_SEARCH_FIELDS, *_SCHEDULE_FIELDS)
    return {field: getattr(cfg, f"{name}_{field}") for field in names}


def check_penalty_fields(cfg: Any, name: str) -> None:
    """Check the fields of a config that every periodic penalty has.

    Args:
        cfg: The config of a training SAE.
        name: The penalty's name, the prefix of its fields.

    Raises:
        TypeError: If one is of another type.
        ValueError: If one is out of its range.
    """
    of = _fields(cfg, name)
    check_non_negative(f"{name}_coefficient", of["coefficient"])
    check_integer(f"{name}_warm_up_steps", of["warm_up_steps"], minimum=0)
    check_integer(f"{name}_start_step", of["start_step"], minimum=0)
    check_integer(f"{name}_interval", of["interval"], minimum=1)
    check_chunk_size(f"{name}_chunk_size", of["chunk_size"])
    check_integer(f"{name}_search_interval", of["search_interval"], minimum=1)
    check_integer(f"{name}_seed", of["seed"])


@dataclass(frozen=True)
class Measured:
    """A penalty at one step.

    Args:
        penalty: Its value as in its equation, without a coefficient.
        scale: What the coefficient is multiplied by to transfer.
        cosines: Of the latents with their neighbours in the chunk.
    """

    penalty: Tensor
    scale: Tensor | float
    cosines: Tensor


Measure = Callable[[TrainStepInput, Tensor, Tensor], Measured]


@dataclass
class PeriodicPenalty:
    """Eq. (26) of the paper: at every T-th step a loss T times as large.

    Args:
        name: Prefix of the loss and the metrics, and name of the coefficient.
        measure: Evaluates the penalty for a step's input, activations and neighbours.
        search: How the neighbours are searched.
        coefficient: The coefficient, and the steps of its warm-up.
        interval: T.
        start_step: Steps before it have a coefficient of 0.
    """

    name: str
    measure: Measure
    search: Search
    coefficient: TrainCoefficientConfig
    interval: int
    start_step: int
    metrics: dict[str, Tensor | float] = field(default_factory=dict, init=False)

    @classmethod
    def of_config(cls, name: str, measure: Measure, cfg: Any) -> "PeriodicPenalty":
        """The penalty that the fields with its name as prefix describe.

        Args:
            name: The penalty's name.
            measure: Evaluates the penalty for a step's input, activations and neighbours.
            cfg: The config of a training SAE.

        Returns:
            The penalty.
        """
        of = _fields(cfg, name)
        return cls(
            name,
            measure,
            Search(*(of[field] for field in _SEARCH_FIELDS)),
            TrainCoefficientConfig(of["coefficient"], of["warm_up_steps"]),
            of["interval"],
            of["start_step"],
        )

    def is_due(self, step_input: TrainStepInput) -> bool:
        """Whether a step is one of every T-th.

        Args:
            step_input: What SAELens gives to every step.

        Returns:
            Whether it is, whatever the coefficient.
        """
        return step_input.n_training_steps % self.interval == 0

    def losses(
        self,
        step_input: TrainStepInput,
        feature_acts: Tensor,
        find: Callable[[Search, int], Found],
    ) -> dict[str, Tensor]:
        """The loss of a step, if it has one, while `metrics` keeps the last values.

        A coefficient of 0 only measures the penalty, so that the losses, and with them the
        weights, stay the backbone's to the bit.

        Args:
            step_input: What SAELens gives to every step.
            feature_acts: The step's activations.
            find: Finds the neighbours that serve a step.

        Returns:
            `{name}_loss` = T * coefficient * scale * penalty, or nothing.
        """
        step = step_input.n_training_steps
        due = self.is_due(step_input)
        # SAELens may never log a step that has a penalty, hence the last values; a run
        # resumed between two such steps has none at its first log, and measures.
        if not due and not (step_input.is_logging_step and not self.metrics):
            return {}
        coefficient = step_input.coefficients[self.name] if step >= self.start_step else 0.0
        applied = due and coefficient > 0
        with torch.set_grad_enabled(applied and torch.is_grad_enabled()):
            found = find(self.search, step)
            measured = self.measure(step_input, feature_acts, found.neighbors)
        effective = coefficient * measured.scale
        self.metrics = {
            f"{self.name}_penalty": measured.penalty.detach(),
            f"{self.name}_effective_coefficient": effective,
            f"{self.name}_mean_max_cosine": measured.cosines.detach().mean(),
        }
        if found.staleness is not None:
            self.metrics[f"{self.name}_neighbor_staleness"] = found.staleness
        if not applied:
            return {}
        return {f"{self.name}_loss": self.interval * effective * measured.penalty}
