"""C2R by both sides, a form on trial, which no release has.

To the paper's penalty it adds another, whose neighbours and gates are those of the encoder's
columns, with the same batch norms.
"""

from dataclasses import dataclass
from typing import Any

from sae_lens.registry import register_sae_training_class
from torch import Tensor

from sae_lens_c2r import BatchTopKC2RTrainingSAE, BatchTopKC2RTrainingSAEConfig
from sae_lens_c2r.architectures.penalized import Decoder, Measured
from sae_lens_c2r.penalties import step_generator
from sae_lens_c2r.penalties.c2r import evaluate
from sae_lens_c2r.penalties.cosines import row_lengths
from sae_lens_c2r.penalties.neighbors import search


@dataclass
class ByBothConfig(BatchTopKC2RTrainingSAEConfig):
    """The config of `batchtopk_c2r`, by another name."""

    @classmethod
    def architecture(cls) -> str:
        """The name in `methods.yaml`."""
        return "batchtopk_c2r_by_both"


class ByBoth(BatchTopKC2RTrainingSAE):
    """BatchTopK with C2R by both sides."""

    cfg: ByBothConfig

    def _measure_c2r(self, feature_acts: Tensor, decoder: Decoder, step: int) -> Measured:
        rows = self.W_enc.T
        _, inverse = row_lengths(rows.detach())
        draw = self.cfg.c2r_chunk_size, step_generator(self.cfg.c2r_seed, step), None
        # The norms' units are those of unit decoder rows, as in the paper's penalty.
        lengths = None if self.cfg.rescale_acts_by_decoder_norm else decoder.lengths
        neighbors = search(rows.detach(), inverse, draw, reduced_precision=True)
        options: dict[str, Any] = {"exponent": 1.0, "pairs": "nearest", "gate": "relu"}
        by_encoder, _ = evaluate(
            feature_acts, rows, inverse, lengths, neighbors=neighbors, draw=draw, **options
        )
        penalty, cosines = super()._measure_c2r(feature_acts, decoder, step)
        return penalty + by_encoder, cosines


register_sae_training_class(ByBothConfig.architecture(), ByBoth, ByBothConfig)
