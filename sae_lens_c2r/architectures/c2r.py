"""C2R for any SAELens training architecture: what a config and an SAE gain by it."""

import math
from dataclasses import dataclass
from typing import Any, get_args

import torch
from sae_lens.registry import get_sae_class
from sae_lens.saes.sae import SAEConfig, TrainingSAEConfig, TrainStepInput
from torch import Tensor

from sae_lens_c2r._support.checks import check_choice, check_positive
from sae_lens_c2r.architectures.penalized import (
    Measured,
    PenalizedMixin,
    Scaling,
    check_penalty_fields,
    input_norm,
)
from sae_lens_c2r.penalties import step_generator, transfer_factor
from sae_lens_c2r.penalties.c2r import Pairs, penalty_of_all_pairs, penalty_of_neighbors
from sae_lens_c2r.penalties.cosines import pair_cosines
from sae_lens_c2r.penalties.gates import Gate, gate_threshold
from sae_lens_c2r.penalties.norms import batch_norms
from sae_lens_c2r.penalties.precision import at_least_float32, full_precision
from sae_lens_c2r.penalties.processes import all_reduce_norms, total


@dataclass(kw_only=True)
class C2RConfigMixin:
    """
    Configuration of the C2R penalty, to stand before a training config among its bases.

    Args:
        c2r_coefficient (float): Strength of the penalty, lambda in the paper; 5 is its choice. With 0 the SAE trains as its backbone does, bit for bit.
        c2r_warm_up_steps (int): Training steps over which the coefficient grows linearly from 0, counted from the first.
        c2r_start_step (int): Training steps before the penalty is applied; it is only measured until then.
        c2r_interval (int): Apply the penalty at every c2r_interval-th step, multiplied by c2r_interval; T in the paper.
        c2r_chunk_size (int | None): Latents among which a nearest neighbour is searched, drawn anew at each penalty step; C in the paper. None, on the command line the flag alone, searches the whole dictionary.
        c2r_exponent (float): Exponent of the summed norms; 1 in the paper.
        c2r_pairs (str): 'nearest' penalizes each latent with its nearest neighbour; 'all' with every other latent of the chunk, the paper's ablation NoNNR.
        c2r_gate (str): 'relu' weights a pair by its squared rectified cosine, as the paper does; 'excess' by the square of what its cosine has above the level of chance, which is ours; 'none' does not, the paper's ablation NoRCG.
        c2r_scaling (str): 'transfer' rescales the coefficient so that one value suits every batch size, width and scale of activations; 'none' takes it literally, for activations of unit norm.
        c2r_seed (int): Seed of the chunks; with the number of the step it determines them.
    """

    c2r_coefficient: float = 5.0
    c2r_warm_up_steps: int = 0
    c2r_start_step: int = 0
    c2r_interval: int = 5
    c2r_chunk_size: int | None = 8192
    c2r_exponent: float = 1.0
    c2r_pairs: Pairs = "nearest"
    c2r_gate: Gate = "relu"
    c2r_scaling: Scaling = "transfer"
    c2r_seed: int = 0

    def __post_init__(self, *init_vars: Any) -> None:
        """Check the options, then let the backbone check its own."""
        check_penalty_fields(self, "c2r")
        check_positive("c2r_exponent", self.c2r_exponent)
        check_choice("c2r_pairs", self.c2r_pairs, get_args(Pairs))
        check_choice("c2r_gate", self.c2r_gate, get_args(Gate))
        check_choice("c2r_scaling", self.c2r_scaling, get_args(Scaling))
        super().__post_init__(*init_vars)  # type: ignore[misc]  # of the config this is mixed into

    @classmethod
    def architecture(cls) -> str:
        """The backbone's name and `_c2r`."""
        return f"{super().architecture()}_c2r"  # type: ignore[misc]

    def get_inference_config_class(self) -> type[SAEConfig]:
        """The backbone's inference form: what is saved needs nothing of ours to load."""
        try:
            return super().get_inference_config_class()  # type: ignore[misc]
        except KeyError:  # SAELens's default is a form of the training architecture's name
            return get_sae_class(super().architecture())[1]  # type: ignore[misc]


class C2RMixin(PenalizedMixin):
    """The C2R penalty as one more entry of a training SAE's losses, to stand before its base.

    Every T-th step adds `c2r_loss` = T * lambda_eff * `c2r_penalty`, Eq. (26) of the paper.
    Every step shows the last values of `c2r_penalty`, of `c2r_effective_coefficient`
    (lambda_eff, without T) and of `c2r_mean_max_cosine` (mean cosine of the latents with
    their neighbours in the chunk) among the metrics.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_penalty("c2r", self._measure_c2r)

    def _measure_c2r(
        self, step_input: TrainStepInput, feature_acts: Tensor, neighbors: Tensor
    ) -> Measured:
        cfg = self.cfg
        threshold = gate_threshold(cfg.c2r_gate, self.W_dec, cfg.c2r_chunk_size)
        with full_precision(self.W_dec):
            norms = self._norms_in_units_of_unit_rows(feature_acts)
            cosines = self._cosines(neighbors)
            if cfg.c2r_pairs == "nearest":
                penalty = penalty_of_neighbors(
                    norms, cosines, neighbors, cfg.c2r_exponent, threshold
                )
            else:
                penalty = penalty_of_all_pairs(
                    norms,
                    self.W_dec,
                    cfg.c2r_chunk_size,
                    cfg.c2r_exponent,
                    threshold,
                    step_generator(cfg.c2r_seed, step_input.n_training_steps),
                    self.process_group,
                )
        return Measured(penalty, self._c2r_scale(step_input.sae_in), cosines)

    def _cosines(self, neighbors: Tensor) -> Tensor:
        penalized = self.cfg.c2r_pairs == "nearest" and self.cfg.c2r_gate != "none"
        return pair_cosines(self.W_dec if penalized else self.W_dec.detach(), neighbors)

    def _norms_in_units_of_unit_rows(self, feature_acts: Tensor) -> Tensor:
        dtype = at_least_float32(feature_acts, self.W_dec)
        norms = all_reduce_norms(batch_norms(feature_acts, dtype), self.process_group)
        if getattr(self.cfg, "rescale_acts_by_decoder_norm", False):
            return norms  # SAELens has multiplied by the decoder norms already
        return norms * torch.linalg.vector_norm(self.W_dec, dim=-1, dtype=dtype)

    def _c2r_scale(self, sae_in: Tensor) -> Tensor | float:
        cfg = self.cfg
        if cfg.c2r_scaling == "none":
            return 1.0
        factor = transfer_factor(
            batch_size=total(
                sae_in.shape[:-1].numel(), self.process_group, device=sae_in.device
            ),
            d_sae=cfg.d_sae,
            d_in=cfg.d_in,
            chunk_size=cfg.c2r_chunk_size,
            exponent=cfg.c2r_exponent,
            pairs=cfg.c2r_pairs,
            gate=cfg.c2r_gate,
        )
        norm = input_norm(cfg, sae_in, self.process_group)
        unit = _unit_of_latents(cfg, norm)
        return factor * norm ** (2 - cfg.c2r_exponent) * unit**cfg.c2r_exponent


def _unit_of_latents(cfg: TrainingSAEConfig, norm: Tensor) -> Tensor | float:
    """Contribution of an activation of 1 to the reconstruction that the loss sees."""
    # SAELens compares the reconstruction with the inputs as they were, where the SAE itself
    # brings every input to the norm sqrt(d_in) and undoes that after decoding.
    if cfg.normalize_activations in {"layer_norm", "constant_norm_rescale"}:
        return norm / math.sqrt(cfg.d_in)
    return 1.0
