"""C2R with one of its two gradients: which half of it does what."""

from sae_lens.saes.sae import TrainStepInput
from torch import Tensor

from sae_lens_c2r import BatchTopKC2RTrainingSAE
from sae_lens_c2r.architectures.penalized import Measured


class DirectionsOnly(BatchTopKC2RTrainingSAE):
    """The activations are detached: the penalty turns decoder rows and nothing else."""

    def _measure_c2r(
        self, step_input: TrainStepInput, feature_acts: Tensor, neighbors: Tensor
    ) -> Measured:
        return super()._measure_c2r(step_input, feature_acts.detach(), neighbors)


class ActivationsOnly(BatchTopKC2RTrainingSAE):
    """The gate is detached: the penalty shrinks and merges activations and nothing else."""

    def _cosines(self, neighbors: Tensor) -> Tensor:
        return super()._cosines(neighbors).detach()


CONTROLS = {"directions_only": DirectionsOnly, "activations_only": ActivationsOnly}
