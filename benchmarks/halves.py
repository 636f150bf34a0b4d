"""C2R with one of its two gradients: which half of it does what."""

from sae_lens.registry import register_sae_training_class
from torch import Tensor

from sae_lens_c2r import BatchTopKC2RTrainingSAE, BatchTopKC2RTrainingSAEConfig


class DirectionsOnly(BatchTopKC2RTrainingSAE):
    """The activations are detached: the penalty turns decoder rows and nothing else."""

    def _measure_c2r(
        self, feature_acts: Tensor, neighbors: Tensor, cosines: Tensor, step: int
    ) -> Tensor:
        return super()._measure_c2r(feature_acts.detach(), neighbors, cosines, step)


class ActivationsOnly(BatchTopKC2RTrainingSAE):
    """The gate is detached: the penalty shrinks and merges activations and nothing else."""

    def _measure_c2r(
        self, feature_acts: Tensor, neighbors: Tensor, cosines: Tensor, step: int
    ) -> Tensor:
        return super()._measure_c2r(feature_acts, neighbors, cosines.detach(), step)


register_sae_training_class("directions_only", DirectionsOnly, BatchTopKC2RTrainingSAEConfig)
register_sae_training_class("activations_only", ActivationsOnly, BatchTopKC2RTrainingSAEConfig)
