"""OrtSAE: BatchTopK with the orthogonality penalty. Saved as SAELens's `jumprelu`."""

from dataclasses import dataclass
from typing import Any, get_args

from sae_lens.saes.batchtopk_sae import BatchTopKTrainingSAE, BatchTopKTrainingSAEConfig
from sae_lens.saes.sae import TrainStepInput
from torch import Tensor

from sae_lens_c2r._support.checks import check_choice
from sae_lens_c2r.architectures.penalized import (
    Measured,
    PenalizedMixin,
    Scaling,
    check_penalty_fields,
    input_norm,
)
from sae_lens_c2r.architectures.with_c2r import register_architecture
from sae_lens_c2r.penalties.cosines import pair_cosines
from sae_lens_c2r.penalties.gates import gate_threshold, squared_gate
from sae_lens_c2r.penalties.orthogonality import OrtGate
from sae_lens_c2r.penalties.precision import full_precision
from sae_lens_c2r.penalties.scaling import chance_factor


@dataclass
class OrtTrainingSAEConfig(BatchTopKTrainingSAEConfig):
    """
    Configuration of `ort`: BatchTopK's fields and those of the orthogonality penalty.

    Args:
        ort_coefficient (float): Strength of the orthogonality penalty; 0.25 in the C2R paper's runs. With 0 the SAE trains as BatchTopK does, bit for bit.
        ort_warm_up_steps (int): Training steps over which the coefficient grows linearly from 0.
        ort_start_step (int): Training steps before the penalty is applied; it is only measured until then.
        ort_interval (int): Apply the penalty at every ort_interval-th step, multiplied by ort_interval.
        ort_chunk_size (int | None): Latents among which a nearest neighbour is searched, drawn anew at each penalty step. None, on the command line the flag alone, searches the whole dictionary.
        ort_gate (str): 'relu' penalizes squared rectified cosines, as OrtSAE does; 'excess' the squares of what they have above the level of chance.
        ort_scaling (str): 'transfer' multiplies the coefficient by the squared norm of the activations, as the reconstruction loss is, and rescales it for the width and the dimension as C2R's; 'none' takes it literally, for activations of unit norm.
        ort_seed (int): Seed of the chunks; with the number of the step it determines them.
    """

    ort_coefficient: float = 0.25
    ort_warm_up_steps: int = 0
    ort_start_step: int = 0
    ort_interval: int = 5
    ort_chunk_size: int | None = 8192
    ort_gate: OrtGate = "relu"
    ort_scaling: Scaling = "transfer"
    ort_seed: int = 0

    def __post_init__(self) -> None:
        """Check the options, then let BatchTopK check its own."""
        check_penalty_fields(self, "ort")
        check_choice("ort_gate", self.ort_gate, get_args(OrtGate))
        check_choice("ort_scaling", self.ort_scaling, get_args(Scaling))
        super().__post_init__()  # type: ignore[no-untyped-call]

    @classmethod
    def architecture(cls) -> str:
        """The name in SAELens's registry."""
        return "ort"


class OrtTrainingSAE(PenalizedMixin, BatchTopKTrainingSAE):
    """A BatchTopK training SAE with the orthogonality penalty among its losses.

    Every T-th step adds `ort_loss` = T * coefficient * r^2 * f * `ort_penalty`, where r is the
    norm of the inputs and f the `chance_factor`, 1 in the paper's setting. The metrics are
    those of `C2RMixin`, with the prefix `ort_`.
    """

    cfg: OrtTrainingSAEConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_penalty("ort", self._measure_ort)

    def _measure_ort(
        self, step_input: TrainStepInput, _feature_acts: Tensor, neighbors: Tensor
    ) -> Measured:
        with full_precision(self.W_dec):
            cosines = pair_cosines(self.W_dec, neighbors)
        threshold = gate_threshold(self.cfg.ort_gate, self.W_dec, self.cfg.ort_chunk_size)
        penalty = squared_gate(cosines, threshold).mean()
        return Measured(penalty, self._ort_scale(step_input.sae_in), cosines)

    def _ort_scale(self, sae_in: Tensor) -> Tensor | float:
        cfg = self.cfg
        if cfg.ort_scaling == "none":
            return 1.0
        factor = chance_factor(
            d_sae=cfg.d_sae,
            d_in=cfg.d_in,
            chunk_size=cfg.ort_chunk_size,
            gate=cfg.ort_gate,
        )
        return factor * input_norm(cfg, sae_in, self.process_group).square()


register_architecture(OrtTrainingSAE, OrtTrainingSAEConfig)
