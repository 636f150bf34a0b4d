"""C2R by what latents read, and tied encoders: forms on trial, which no release has.

By the encoder, neighbours and gates are those of the encoder's columns. By both, that penalty
is added to the paper's. The batch norms are the paper's in either case.
"""

from dataclasses import dataclass
from typing import Any, Literal

from sae_lens.registry import register_sae_training_class
from sae_lens.saes.sae import TrainStepInput, TrainStepOutput
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import normalize

from sae_lens_c2r import BatchTopKC2RTrainingSAE, BatchTopKC2RTrainingSAEConfig
from sae_lens_c2r.architectures.penalized import Decoder, Measured
from sae_lens_c2r.penalties import step_generator
from sae_lens_c2r.penalties.c2r import evaluate
from sae_lens_c2r.penalties.cosines import row_lengths
from sae_lens_c2r.penalties.neighbors import search


@dataclass
class DirectionsConfig(BatchTopKC2RTrainingSAEConfig):
    """The config of `batchtopk_c2r`, and which directions the penalty takes."""

    c2r_directions: Literal["encoder", "both"] = "both"

    @classmethod
    def architecture(cls) -> str:
        """The name in `methods.yaml`."""
        return "batchtopk_c2r_directions"


class Directions(BatchTopKC2RTrainingSAE):
    """BatchTopK with C2R by the encoder, or by both sides."""

    cfg: DirectionsConfig

    def _measure_c2r(self, feature_acts: Tensor, decoder: Decoder, step: int) -> Measured:
        by_encoder = self._by_encoder(feature_acts, decoder, step)
        if self.cfg.c2r_directions == "encoder":
            return by_encoder
        penalty, cosines = super()._measure_c2r(feature_acts, decoder, step)
        return penalty + by_encoder[0], cosines

    def _by_encoder(self, feature_acts: Tensor, decoder: Decoder, step: int) -> Measured:
        rows = self.W_enc.T
        _, inverse = row_lengths(rows.detach())
        draw = self.cfg.c2r_chunk_size, step_generator(self.cfg.c2r_seed, step), None
        # The norms' units are those of unit decoder rows, as in the paper's penalty.
        lengths = None if self.cfg.rescale_acts_by_decoder_norm else decoder.lengths
        neighbors = search(rows.detach(), inverse, draw, reduced_precision=True)
        options: dict[str, Any] = {"exponent": 1.0, "pairs": "nearest", "gate": "relu"}
        return evaluate(
            feature_acts, rows, inverse, lengths, neighbors=neighbors, draw=draw, **options
        )


@dataclass
class TiedConfig(BatchTopKC2RTrainingSAEConfig):
    """The config of `batchtopk_c2r`, for tied encoders."""

    @classmethod
    def architecture(cls) -> str:
        """The name in `methods.yaml`."""
        return "batchtopk_c2r_tied"


class Tied(BatchTopKC2RTrainingSAE):
    """BatchTopK with C2R, whose encoder's columns are the decoder's rows, of norm 1."""

    cfg: TiedConfig

    def training_forward_pass(self, step_input: TrainStepInput) -> TrainStepOutput:
        """The forward pass with a tied encoder, which gives its gradient to the decoder."""
        encoder = normalize(self.W_dec, dim=1).T
        self.W_enc.data.copy_(encoder)  # what is saved, and evaluated
        return functional_call(_Forward(self), {"sae.W_enc": encoder}, (step_input,))

    def process_state_dict_for_saving_inference(self, state_dict: dict[str, Any]) -> None:
        """Save the encoder of the last step's decoder."""
        state_dict["W_enc"] = normalize(self.W_dec.detach(), dim=1).T.contiguous()
        super().process_state_dict_for_saving_inference(state_dict)


class _Forward(nn.Module):
    """A training step of an SAE as a module's forward pass, which torch can call otherwise."""

    def __init__(self, sae: Tied) -> None:
        super().__init__()
        self.sae = sae

    def forward(self, step_input: TrainStepInput) -> TrainStepOutput:
        return BatchTopKC2RTrainingSAE.training_forward_pass(self.sae, step_input)


register_sae_training_class(DirectionsConfig.architecture(), Directions, DirectionsConfig)
register_sae_training_class(TiedConfig.architecture(), Tied, TiedConfig)
