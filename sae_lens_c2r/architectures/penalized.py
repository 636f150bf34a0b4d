"""Training SAEs with periodic penalties among their losses and metrics."""

from pathlib import Path
from typing import Any

import torch
from sae_lens.saes.sae import (
    TrainCoefficientConfig,
    TrainingSAE,
    TrainStepInput,
    TrainStepOutput,
)
from torch import Tensor
from torch.distributed import ProcessGroup

from sae_lens_c2r.architectures.periodic import Measure, PeriodicPenalty
from sae_lens_c2r.architectures.search import Found, NeighborSearch, Search


class PenalizedMixin(TrainingSAE[Any]):
    """Adds periodic penalties to the losses of a training SAE, to stand before its base.

    Classes that have a penalty call `add_penalty` when they are constructed.

    `process_group` may be set to the processes over which each batch is split, with the same
    weights in all of them: the penalties are then those of the joined batch, and gradients
    averaged over the processes are theirs.
    """

    penalties: list[PeriodicPenalty]
    neighbor_search: NeighborSearch
    process_group: ProcessGroup | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.penalties = []
        self.neighbor_search = NeighborSearch()
        self.register_load_state_dict_post_hook(  # type: ignore[no-untyped-call]
            lambda sae, _: sae.neighbor_search.forget()
        )

    def add_penalty(self, name: str, measure: Measure) -> None:
        """Add a penalty that the fields of the config with its name as prefix describe.

        Args:
            name: Prefix of the fields, the loss and the metrics.
            measure: Evaluates the penalty for a step's input, activations and neighbours.
        """
        self.penalties.append(PeriodicPenalty.of_config(name, measure, self.cfg))

    def get_coefficients(self) -> dict[str, float | TrainCoefficientConfig]:
        """The backbone's coefficients and ours, warmed up and logged by SAELens."""
        ours = {penalty.name: penalty.coefficient for penalty in self.penalties}
        return {**super().get_coefficients(), **ours}  # type: ignore[safe-super]

    def penalty_state(self) -> dict[str, Any]:
        """What the penalties carry from step to step: neighbours, and what logs show."""
        metrics = {penalty.name: penalty.metrics for penalty in self.penalties}
        return {"neighbors": self.neighbor_search.state(), "metrics": metrics}

    def restore_penalties(self, state: dict[str, Any]) -> None:
        """Continue from an earlier `penalty_state`."""
        self.neighbor_search.restore(state["neighbors"])
        for penalty in self.penalties:
            penalty.metrics = state["metrics"][penalty.name]

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
        self.neighbor_search.begin_step()
        losses: dict[str, Tensor] = {}
        for penalty in self.penalties:
            # A process that logs should not wait for others that do not.
            if penalty.is_due(step_input) or self.process_group is None:
                losses.update(penalty.losses(step_input, feature_acts, self._find))
        return losses

    def _find(self, search: Search, step: int) -> Found:
        return self.neighbor_search.find(search, self.W_dec, step, self.process_group)

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
