"""What might be better than C2R: one of its two gradients, and a lambda that lowers itself."""

from sae_lens.registry import register_sae_training_class
from torch import Tensor

from sae_lens_c2r import BatchTopKC2RTrainingSAE, BatchTopKC2RTrainingSAEConfig
from sae_lens_c2r.penalties.gates import candidates, chance_composition


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


class DownToChance(BatchTopKC2RTrainingSAE):
    """Lambda falls where composition is at the level of chance or below, and rises above it."""

    share = 1.0  # of lambda

    def _measure_c2r(
        self, feature_acts: Tensor, neighbors: Tensor, cosines: Tensor, step: int
    ) -> Tensor:
        among = candidates(self.cfg.d_sae, self.cfg.c2r_chunk_size)
        at_chance = cosines.mean().item() <= chance_composition(among, self.cfg.d_in)
        self.share = self.share * 0.9 if at_chance else min(1.0, self.share / 0.9)
        return self.share * super()._measure_c2r(feature_acts, neighbors, cosines, step)


register_sae_training_class("directions_only", DirectionsOnly, BatchTopKC2RTrainingSAEConfig)
register_sae_training_class("activations_only", ActivationsOnly, BatchTopKC2RTrainingSAEConfig)
register_sae_training_class("down_to_chance", DownToChance, BatchTopKC2RTrainingSAEConfig)
