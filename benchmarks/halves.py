"""C2R with one of its two gradients: which half of it does what."""

from torch import Tensor

from sae_lens_c2r import BatchTopKC2RTrainingSAE


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


HALVES = {"directions_only": DirectionsOnly, "activations_only": ActivationsOnly}
