"""Training SAEs with penalties of every T-th step among their losses and metrics."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from sae_lens.saes.sae import (
    TrainCoefficientConfig,
    TrainingSAE,
    TrainingSAEConfig,
    TrainStepInput,
    TrainStepOutput,
)
from torch import Tensor
from torch.distributed import ProcessGroup

from sae_lens_c2r._support.checks import check_chunk_size, check_integer, check_non_negative
from sae_lens_c2r.penalties import nearest_neighbors, step_generator, typical_norm

Scaling = Literal["transfer", "none"]


def check_penalty_fields(cfg: Any, name: str) -> None:
    """Check the fields of a config that every periodic penalty has."""
    check_non_negative(f"{name}_coefficient", getattr(cfg, f"{name}_coefficient"))
    check_chunk_size(f"{name}_chunk_size", getattr(cfg, f"{name}_chunk_size"))
    for field_name, minimum in (
        *((f"{name}_warm_up_steps", 0), (f"{name}_start_step", 0)),
        *((f"{name}_interval", 1), (f"{name}_seed", None)),
    ):
        check_integer(field_name, getattr(cfg, field_name), minimum=minimum)


def input_norm(
    cfg: TrainingSAEConfig, sae_in: Tensor, process_group: ProcessGroup | None
) -> Tensor:
    """The norm r of the inputs as the reconstruction loss sees it, which is of order r^2."""
    if cfg.normalize_activations == "layer_norm":  # the mean is added back after decoding
        sae_in = sae_in - sae_in.mean(dim=-1, keepdim=True)
    return typical_norm(sae_in, process_group=process_group)


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
FindNeighbors = Callable[[int | None, int, int], Tensor]  # for chunk size, seed and step


@dataclass
class PeriodicPenalty:
    """Eq. (26) of the paper: at every T-th step a loss T times as large.

    Args:
        name: Prefix of the fields in the config, the loss and the metrics.
        measure: Evaluates the penalty for a step's input, activations and neighbours.
        cfg: The config of the training SAE.
        metrics: The last values, for every log to show.
    """

    name: str
    measure: Measure
    cfg: Any
    metrics: dict[str, Tensor | float] = field(default_factory=dict)

    def _option(self, name: str) -> Any:
        return getattr(self.cfg, f"{self.name}_{name}")

    @property
    def coefficient(self) -> TrainCoefficientConfig:
        """The coefficient, which SAELens warms up."""
        return TrainCoefficientConfig(
            self._option("coefficient"), self._option("warm_up_steps")
        )

    def is_due(self, step_input: TrainStepInput) -> bool:
        """Whether a step is one of every T-th, whatever the coefficient."""
        return bool(step_input.n_training_steps % self._option("interval") == 0)

    def losses(
        self, step_input: TrainStepInput, feature_acts: Tensor, find: FindNeighbors
    ) -> dict[str, Tensor]:
        """The loss of a step, T * coefficient * scale * penalty, if the step has one."""
        step, interval = step_input.n_training_steps, self._option("interval")
        due = self.is_due(step_input)
        # SAELens may never log a step that has a penalty, hence the last values; a run
        # resumed between two such steps has none at its first log, and measures.
        if not due and not (step_input.is_logging_step and not self.metrics):
            return {}
        begun = step >= self._option("start_step")
        coefficient = step_input.coefficients[self.name] if begun else 0.0
        # With a coefficient of 0 the penalty is only measured, so that the losses, and with
        # them the weights, stay the backbone's to the bit.
        applied = due and coefficient > 0
        with torch.set_grad_enabled(applied and torch.is_grad_enabled()):
            neighbors = find(
                self._option("chunk_size"), self._option("seed"), step - step % interval
            )
            measured = self.measure(step_input, feature_acts, neighbors)
        effective = coefficient * measured.scale
        self.metrics = {
            f"{self.name}_penalty": measured.penalty.detach(),
            f"{self.name}_effective_coefficient": effective,
            f"{self.name}_mean_max_cosine": measured.cosines.detach().mean(),
        }
        if not applied:
            return {}
        return {f"{self.name}_loss": interval * effective * measured.penalty}


class PenalizedMixin(TrainingSAE[Any]):
    """Adds periodic penalties to the losses of a training SAE, to stand before its base.

    Classes that have a penalty call `add_penalty` when they are constructed.

    `process_group` may be set to the processes over which each batch is split, with the same
    weights in all of them: the penalties are then those of the joined batch, and gradients
    averaged over the processes are theirs.
    """

    penalties: list[PeriodicPenalty]
    process_group: ProcessGroup | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.penalties = []

    def add_penalty(self, name: str, measure: Measure) -> None:
        """Add a penalty that the fields of the config with its name as prefix describe."""
        self.penalties.append(PeriodicPenalty(name, measure, self.cfg))

    def get_coefficients(self) -> dict[str, float | TrainCoefficientConfig]:
        """The backbone's coefficients and ours, warmed up and logged by SAELens."""
        ours = {penalty.name: penalty.coefficient for penalty in self.penalties}
        return {**super().get_coefficients(), **ours}  # type: ignore[safe-super]

    def penalty_state(self) -> dict[str, Any]:
        """The values that logs show, which the penalties carry from step to step."""
        return {penalty.name: penalty.metrics for penalty in self.penalties}

    def restore_penalties(self, state: dict[str, Any]) -> None:
        """Continue from an earlier `penalty_state`."""
        for penalty in self.penalties:
            penalty.metrics = state[penalty.name]

    def save_inference_model(self, path: str | Path) -> tuple[Path, Path]:
        """Save as the backbone does; the metadata keep what the coefficients came to."""
        for penalty in self.penalties:
            key = f"{penalty.name}_effective_coefficient"
            if key in penalty.metrics:
                self.cfg.metadata[key] = float(penalty.metrics[key])
        return super().save_inference_model(path)

    def calculate_aux_loss(
        self,
        step_input: TrainStepInput,
        feature_acts: Tensor,
        hidden_pre: Tensor,
        sae_out: Tensor,
        **others: Any,
    ) -> dict[str, Tensor]:
        """The backbone's auxiliary losses and, on penalty steps, ours."""
        losses = super().calculate_aux_loss(  # type: ignore[safe-super]
            step_input=step_input,
            feature_acts=feature_acts,
            hidden_pre=hidden_pre,
            sae_out=sae_out,
            **others,
        )
        if isinstance(losses, Tensor):  # SAELens allows an architecture this shorthand
            losses = {"auxiliary_loss": losses}
        return {**losses, **self._penalty_losses(step_input, feature_acts)}

    def training_forward_pass(self, step_input: TrainStepInput) -> TrainStepOutput:
        """The backbone's forward pass, with our metrics."""
        output = super().training_forward_pass(step_input)
        output.metrics.update(self._penalty_metrics(step_input))
        return output

    # Left out of `compile_sae`: the number of the step would recompile it at every step.
    @torch.compiler.disable
    def _penalty_losses(
        self, step_input: TrainStepInput, feature_acts: Tensor
    ) -> dict[str, Tensor]:
        find = functools.cache(self._nearest_neighbors)  # penalties of a step share a search
        losses: dict[str, Tensor] = {}
        for penalty in self.penalties:
            # A process that logs should not wait for others that do not.
            if penalty.is_due(step_input) or self.process_group is None:
                losses.update(penalty.losses(step_input, feature_acts, find))
        return losses

    def _nearest_neighbors(self, chunk_size: int | None, seed: int, step: int) -> Tensor:
        return nearest_neighbors(
            self.W_dec,
            chunk_size=chunk_size,
            generator=step_generator(seed, step),
            reduced_precision=True,
            process_group=self.process_group,
        )

    @torch.compiler.disable
    def _penalty_metrics(self, step_input: TrainStepInput) -> dict[str, Tensor | float]:
        metrics: dict[str, Tensor | float] = {}
        for penalty in self.penalties:
            if penalty.is_due(step_input) and not penalty.metrics:
                raise TypeError(
                    f"{type(self).__qualname__} cannot have the penalty {penalty.name!r}: its "
                    "training_forward_pass does not call calculate_aux_loss."
                )
            metrics.update(penalty.metrics)
        return metrics
