"""Training SAEs with penalties of every T-th step among their losses and metrics."""

import functools
import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import torch
from sae_lens.saes.sae import (
    TrainCoefficientConfig,
    TrainingSAE,
    TrainStepInput,
    TrainStepOutput,
)
from torch import Tensor
from torch.distributed import ProcessGroup

from sae_lens_c2r._support.checks import (
    check_choice,
    check_chunk_size,
    check_integer,
    check_number,
    message,
    plain,
)
from sae_lens_c2r.penalties import step_generator, transfer_factor, typical_norm
from sae_lens_c2r.penalties.batches import total
from sae_lens_c2r.penalties.cosines import row_lengths
from sae_lens_c2r.penalties.neighbors import search

Scaling = Literal["transfer", "none"]
_LEAST = {"warm_up_steps": 0, "start_step": 0, "interval": 1}


class Decoder(NamedTuple):
    """The decoder as all penalties of a step share it: it is measured and searched once."""

    lengths: Tensor
    inverse: Tensor
    search: Callable[[int | None, int, int], Tensor]  # for chunk size, seed and step


# A penalty without its coefficient, and the cosines with neighbours if it has any: of the
# activations, the decoder and the step that drew the chunks.
Measured = tuple[Tensor, Tensor | None]
Measure = Callable[[Tensor, Decoder, int], Measured]


def check_penalty_options(cfg: Any, penalty: str, described_by: Any) -> None:
    """Check the fields of a config that describe a penalty: those with its name as prefix.

    Their types are those of the class that describes it: one that inherits it may write its
    own as strings.
    """
    for field in fields(described_by):
        prefix, _, option = field.name.partition("_")
        if prefix != penalty:
            continue
        value = plain(getattr(cfg, field.name))
        setattr(cfg, field.name, value)  # what is saved is JSON
        if get_origin(field.type) is Literal:
            check_choice(field.name, value, get_args(field.type))
        elif field.type is float:
            check_number(field.name, value, positive=option == "exponent")
        elif option == "chunk_size":
            check_chunk_size(field.name, value)
        else:
            check_integer(field.name, value, minimum=_LEAST.get(option))


class PenaltyConfigMixin:
    """Refuses misspelt options of a penalty: a mixin to put before a training config."""

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any]) -> Any:
        """Read a config as SAELens does, which would drop a field with a misspelt name."""
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        prefixes = ("c2r_", "ort_")
        for key in config_dict.keys() - set(names):
            if key.startswith(prefixes):
                known = ", ".join(name for name in names if name.startswith(prefixes))
                should = f"be a field of {cls.__name__}: {known}"
                raise ValueError(message(key, should, config_dict[key]))
        return super().from_dict(config_dict)  # type: ignore[misc]


class PenalizedMixin(TrainingSAE[Any]):
    """Adds periodic penalties to a training SAE's losses: a mixin to put before its class.

    Classes that have a penalty call `add_penalty` when they are constructed. `penalty_metrics`
    has the last values of each penalty, for every log to show.

    `process_group` may be set to the processes over which each batch is split, with the same
    weights in all of them. The penalties are then those of the joined batch, and so are their
    gradients, averaged over the processes.
    """

    penalty_metrics: dict[str, dict[str, Tensor | float]]
    process_group: ProcessGroup | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._measures: dict[str, Measure] = {}
        self.penalty_metrics = {}

    def add_penalty(self, name: str, measure: Measure) -> None:
        """Add a penalty that the fields of the config with its name as prefix describe."""
        self._measures[name] = measure
        self.penalty_metrics[name] = {}

    def get_coefficients(self) -> dict[str, float | TrainCoefficientConfig]:
        """The backbone's coefficients and ours, warmed up and logged by SAELens."""
        coefficients = dict(super().get_coefficients())  # type: ignore[safe-super]
        for name in self._measures:
            coefficients[name] = TrainCoefficientConfig(
                self._option(name, "coefficient"), self._option(name, "warm_up_steps")
            )
        return coefficients

    def save_inference_model(self, path: str | Path) -> tuple[Path, Path]:
        """Save as the backbone does; the metadata keep the effective coefficients."""
        for name, metrics in self.penalty_metrics.items():
            if metrics:
                key = f"{name}_effective_coefficient"
                self.cfg.metadata[key] = float(metrics[key])
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
        output.metrics.update(self._all_metrics(step_input))
        return output

    def _option(self, penalty: str, option: str) -> Any:
        return getattr(self.cfg, f"{penalty}_{option}")

    def _is_due(self, name: str, step_input: TrainStepInput) -> bool:
        return bool(step_input.n_training_steps % self._option(name, "interval") == 0)

    # Left out of `compile_sae`: the number of the step would recompile it at every step.
    @torch.compiler.disable
    def _penalty_losses(
        self, step_input: TrainStepInput, feature_acts: Tensor
    ) -> dict[str, Tensor]:
        """Eq. (26) of the paper: at every T-th step, a loss T times as large."""
        decoder = functools.cache(self._decoder)  # penalties of a step share one
        losses = {}
        for name, metrics in self.penalty_metrics.items():
            # SAELens may never log a step that has a penalty, hence the last values; a run
            # resumed between two such steps has none at its first log, and measures. Not so
            # where processes share a batch: those that do not log would not take part.
            first_log = step_input.is_logging_step and not metrics
            if self._is_due(name, step_input) or (first_log and self.process_group is None):
                loss = self._evaluate(name, step_input, feature_acts, decoder())
                if loss is not None:
                    losses[f"{name}_loss"] = loss
        return losses

    def _decoder(self) -> Decoder:
        lengths, inverse = row_lengths(self.W_dec)

        @functools.cache
        def search_once(chunk_size: int | None, seed: int, step: int) -> Tensor:
            draw = chunk_size, step_generator(seed, step), self.process_group
            return search(self.W_dec, inverse, draw, reduced_precision=True)

        return Decoder(lengths, inverse, search_once)

    def _evaluate(
        self, name: str, step_input: TrainStepInput, feature_acts: Tensor, decoder: Decoder
    ) -> Tensor | None:
        """The loss of a penalty, whose metrics are kept; `None` where it is only measured."""
        step, interval = step_input.n_training_steps, self._option(name, "interval")
        begun = step >= self._option(name, "start_step")
        coefficient = step_input.coefficients[name] if begun else 0.0
        # With a coefficient of 0 it is only measured: weights stay the backbone's to the bit.
        applied = self._is_due(name, step_input) and coefficient > 0
        with torch.set_grad_enabled(applied and torch.is_grad_enabled()):
            drawn = step - step % interval
            penalty, cosines = self._measures[name](feature_acts, decoder, drawn)
        effective = coefficient * self._scale(name, step_input.sae_in)
        self.penalty_metrics[name] = {
            f"{name}_penalty": penalty.detach(),
            f"{name}_effective_coefficient": effective,
        }
        if cosines is not None:
            self.penalty_metrics[name][f"{name}_mean_max_cosine"] = cosines.detach().mean()
        return interval * effective * penalty if applied else None

    def _scale(self, name: str, sae_in: Tensor) -> Tensor | float:
        """The factor of a coefficient with which it acts on these inputs as in the paper."""
        cfg = self.cfg
        if self._option(name, "scaling") == "none":
            return 1.0
        exponent = getattr(cfg, f"{name}_exponent", 0.0)  # OrtSAE's has no activations
        n_samples = sae_in.shape[:-1].numel()
        factor = transfer_factor(
            batch_size=total(n_samples, self.process_group, sae_in.device),
            d_sae=cfg.d_sae,
            d_in=cfg.d_in,
            chunk_size=self._option(name, "chunk_size"),
            exponent=exponent,
            pairs=getattr(cfg, f"{name}_pairs", "nearest"),
            gate=getattr(cfg, f"{name}_gate", "relu"),
        )
        # The inputs and the latents as the reconstruction loss sees them: SAELens compares with
        # the inputs as they were, where the SAE itself brings every input to the norm
        # sqrt(d_in), or of layer norm also to the mean 0, and undoes that after decoding.
        if cfg.normalize_activations == "layer_norm":
            sae_in = sae_in - sae_in.mean(dim=-1, keepdim=True)
        norm = typical_norm(sae_in, process_group=self.process_group)
        rescales = cfg.normalize_activations in {"layer_norm", "constant_norm_rescale"}
        unit = norm / math.sqrt(cfg.d_in) if rescales else 1.0
        return factor * unit**exponent * norm ** (2 - exponent)

    @torch.compiler.disable
    def _all_metrics(self, step_input: TrainStepInput) -> dict[str, Tensor | float]:
        shown: dict[str, Tensor | float] = {}
        for name, metrics in self.penalty_metrics.items():
            if not metrics and self._is_due(name, step_input):
                raise TypeError(
                    f"{type(self).__qualname__} cannot have the penalty {name!r}: its "
                    "training_forward_pass does not call calculate_aux_loss."
                )
            shown.update(metrics)
        return shown
