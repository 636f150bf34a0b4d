"""What might be better than C2R: half its gradient, another gate, a lambda that falls."""

import math
from typing import Any

from sae_lens.registry import register_sae_training_class
from torch import Tensor

from sae_lens_c2r import BatchTopKC2RTrainingSAE, BatchTopKC2RTrainingSAEConfig
from sae_lens_c2r.analysis import chance_composition
from sae_lens_c2r.architectures.penalized import Decoder, Measured
from sae_lens_c2r.penalties import scaling
from sae_lens_c2r.penalties.batches import batch_norms
from sae_lens_c2r.penalties.c2r import penalty_of_neighbors
from sae_lens_c2r.penalties.scaling import candidates


class DirectionsOnly(BatchTopKC2RTrainingSAE):
    """The activations are detached: the penalty turns decoder rows and nothing else."""

    def _measure_c2r(self, feature_acts: Tensor, decoder: Decoder, step: int) -> Measured:
        return super()._measure_c2r(feature_acts.detach(), decoder, step)


class _OtherCosines(BatchTopKC2RTrainingSAE):
    """Something else takes the place of the cosines."""

    def _measure_c2r(self, feature_acts: Tensor, decoder: Decoder, step: int) -> Measured:
        _, cosines, neighbors = super()._measure_c2r(feature_acts, decoder, step)
        assert cosines is not None
        assert neighbors is not None
        assert self.cfg.rescale_acts_by_decoder_norm
        about = neighbors, self.cfg.c2r_exponent, self.cfg.c2r_gate
        norms = batch_norms(feature_acts, cosines.dtype)
        return penalty_of_neighbors(norms, self._other(cosines), *about), cosines, neighbors

    def _other(self, cosines: Tensor) -> Tensor:
        raise NotImplementedError


class ActivationsOnly(_OtherCosines):
    """The gate is detached: the penalty shrinks and merges activations and nothing else."""

    def _other(self, cosines: Tensor) -> Tensor:
        return cosines.detach()


class _OfChance(BatchTopKC2RTrainingSAE):
    """Knows the highest cosine that chance gives a latent."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.among = candidates(self.cfg.d_sae, self.cfg.c2r_chunk_size)
        self.chance = chance_composition(self.among, self.cfg.d_in)


class ExcessGate(_OfChance, _OtherCosines):
    """A pair counts by the square of what its cosine has above the level of chance."""

    def _other(self, cosines: Tensor) -> Tensor:
        return cosines - self.chance

    def _scale(self, name: str, sae_in: Tensor) -> Tensor | float:
        # The rule holds constant what the paper's gate does at the level of chance. This one is
        # shut there.
        papers = math.log(scaling.PAPER_CANDIDATES) / scaling.PAPER_D_IN
        return super()._scale(name, sae_in) * (math.log(self.among) / self.cfg.d_in) / papers


class DirectionsOnlyExcessGate(DirectionsOnly, ExcessGate):
    """Both."""


class DownToChance(_OfChance):
    """Lambda falls where composition is at the level of chance or below, and rises above it."""

    share = 1.0  # of lambda

    def _measure_c2r(self, feature_acts: Tensor, decoder: Decoder, step: int) -> Measured:
        penalty, cosines, neighbors = super()._measure_c2r(feature_acts, decoder, step)
        assert cosines is not None
        at_chance = cosines.mean().item() <= self.chance
        self.share = self.share * 0.9 if at_chance else min(1.0, self.share / 0.9)
        return self.share * penalty, cosines, neighbors


for architecture, of in {
    "directions_only": DirectionsOnly,
    "activations_only": ActivationsOnly,
    "excess_gate": ExcessGate,
    "directions_only_excess_gate": DirectionsOnlyExcessGate,
    "down_to_chance": DownToChance,
}.items():
    register_sae_training_class(architecture, of, BatchTopKC2RTrainingSAEConfig)
