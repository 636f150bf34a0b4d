"""OrtSAE: BatchTopK with the orthogonality penalty. Saved as SAELens's `jumprelu`."""

from dataclasses import dataclass
from typing import Any

from sae_lens.saes.batchtopk_sae import BatchTopKTrainingSAE, BatchTopKTrainingSAEConfig
from torch import Tensor

from sae_lens_c2r.architectures.penalized import (
    Decoder,
    Measured,
    PenalizedMixin,
    PenaltyConfigMixin,
    Scaling,
    check_penalty_options,
)
from sae_lens_c2r.architectures.with_c2r import register_architecture
from sae_lens_c2r.penalties.c2r import squared_gate
from sae_lens_c2r.penalties.cosines import pair_cosines


@dataclass
class OrtTrainingSAEConfig(PenaltyConfigMixin, BatchTopKTrainingSAEConfig):
    """
    Configuration of `ort`: BatchTopK's fields and those of the orthogonality penalty.

    Args:
        ort_coefficient (float): Strength of the orthogonality penalty; 0.25 in the C2R paper's runs. With 0 the SAE trains as BatchTopK does, bit for bit.
        ort_warm_up_steps (int): Training steps over which the coefficient grows linearly from 0, counted from the first.
        ort_start_step (int): Training steps before the penalty is applied; it is only measured until then.
        ort_interval (int): Apply the penalty at every ort_interval-th step, multiplied by ort_interval.
        ort_chunk_size (int | None): Latents among which a nearest neighbour is searched, drawn anew at each penalty step. None, on the command line the flag alone, searches the whole dictionary.
        ort_scaling (str): 'transfer' multiplies the coefficient by the squared norm of the activations, as the reconstruction loss is, and rescales it for the width and the dimension as C2R's; 'none' takes it literally, for activations of unit norm.
        ort_seed (int): Seed of the chunks; with the number of the step it determines them.
    """

    ort_coefficient: float = 0.25
    ort_warm_up_steps: int = 0
    ort_start_step: int = 0
    ort_interval: int = 5
    ort_chunk_size: int | None = 8192
    ort_scaling: Scaling = "transfer"
    ort_seed: int = 0

    def __post_init__(self) -> None:
        """Check the options, then let BatchTopK check its own."""
        check_penalty_options(self, "ort", OrtTrainingSAEConfig)
        super().__post_init__()  # type: ignore[no-untyped-call]

    @classmethod
    def architecture(cls) -> str:
        """The name in SAELens's registry."""
        return "ort"


class OrtTrainingSAE(PenalizedMixin, BatchTopKTrainingSAE):
    """A BatchTopK training SAE with the orthogonality penalty among its losses.

    Every T-th step adds `ort_loss` = T * coefficient * r^2 * f * `ort_penalty`, where r is the
    norm of the inputs and f the `transfer_factor` of exponent 0. The metrics are those of
    `C2RMixin`, with the prefix `ort_`.
    """

    cfg: OrtTrainingSAEConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_penalty("ort", self._measure_ort)

    def _measure_ort(self, _feature_acts: Tensor, decoder: Decoder, step: int) -> Measured:
        neighbors = decoder.search(self.cfg.ort_chunk_size, self.cfg.ort_seed, step)
        cosines = pair_cosines(self.W_dec, neighbors, decoder.inverse)
        return squared_gate(cosines, "relu").mean(), cosines


register_architecture(OrtTrainingSAE, OrtTrainingSAEConfig)
