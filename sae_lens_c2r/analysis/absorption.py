"""The paper's condition for consolidation, Eq. (13), on the latents of a trained SAE."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sae_lens_c2r._support import checks
from sae_lens_c2r.penalties import nearest_neighbors
from sae_lens_c2r.penalties.cosines import at_least_float32, pair_cosines, slices_of_tiles


@dataclass(frozen=True)
class AbsorptionPairs:
    """Pairs of a general latent, the parent, and a specific one that takes its place.

    Args:
        parents: Index of each pair's parent.
        children: Index of each pair's child.
        cosines: Cosine of their decoder rows.
        A: Energy of the parent where the child is silent.
        B: Energy of the child beside the parent's direction.
        alpha: Share of the parent's feature that the child carries where it fires.
    """

    parents: Int[Tensor, " pairs"]
    children: Int[Tensor, " pairs"]
    cosines: Float[Tensor, " pairs"]
    A: Float[Tensor, " pairs"]
    B: Float[Tensor, " pairs"]
    alpha: Float[Tensor, " pairs"]

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def thresholds(self) -> Float[Tensor, " pairs"]:
        """The least leak that the penalty works against: Eq. (13)'s right-hand side."""
        return 1 / ((self.A / self.B).sqrt() + 1)

    @property
    def satisfied(self) -> Tensor:
        """Whether the condition holds, for each pair."""
        return self.alpha >= self.thresholds


@torch.no_grad()
def absorption_pairs(
    W_dec: Float[Tensor, "d_sae d_in"],
    batches: Iterable[Float[Tensor, "tokens d_sae"]],
    *,
    least_cosine: float = 0.2,
    least_firings: int = 10,
    least_silence: float = 0.5,
) -> AbsorptionPairs:
    r"""Find absorption pairs, and the two sides of Eq. (13) for each.

    The paper does not say how it finds its pairs. Here a latent is a *child* of the latent
    whose decoder row is the nearest to its own, the *parent*, if their cosine is high enough
    for the child to carry part of the parent's feature, the parent fires more often than the
    child, and the parent is silent on most tokens on which the child fires, as if absorbed.

    In the paper's Section 3 the child's decoder row is
    :math:`w_2 \propto \alpha z_1 f_1 + z_2 f_2`, with :math:`f_1 = w_1` the parent's feature
    and :math:`f_2 \perp f_1` the residual. With p and c the activations of parent and child
    and :math:`\rho` their cosine, a token therefore has

    .. math::
        \alpha z_1 = c \rho, \qquad z_1 = p + c \rho, \qquad z_2 = c \sqrt{1 - \rho^2}

    and a pair, over the tokens, :math:`A = \sum_{c = 0} p^2`, :math:`B = \sum z_2^2` (Eq. 22)
    and the leak that fits its tokens best in least squares,
    :math:`\alpha = \sum_{c > 0} c \rho z_1 / \sum_{c > 0} z_1^2`.

    Args:
        W_dec: The decoder, with rows of lengths as of `c2r_penalty`.
        batches: The latents' activations on text. Negative ones count as none.
        least_cosine: Of a pair's decoder rows. Compare it with the chance level.
        least_firings: Tokens on which a child fires.
        least_silence: Share of the child's tokens on which the parent is silent.

    Returns:
        The pairs.
    """
    neighbors = nearest_neighbors(W_dec, chunk_size=None)
    cosines = pair_cosines(W_dec, neighbors)
    children = (cosines >= least_cosine).nonzero().squeeze(1)
    parents, rho = neighbors[children], cosines[children].clamp(max=1)
    lengths = W_dec.to(at_least_float32(W_dec)).norm(dim=-1)
    zeros = torch.zeros(len(children), dtype=torch.float64, device="cpu")
    sums: dict[str, Tensor] = defaultdict(zeros.clone)
    for acts in checks.checked_batches(batches, W_dec):
        for tile in slices_of_tiles((len(children), len(acts)), acts.device):
            parent, child = (
                acts[:, latents[tile]].to(lengths.dtype).clamp(min=0) * lengths[latents[tile]]
                for latents in (parents, children)
            )
            for name, values in _of_tokens(parent, child, rho[tile]).items():
                sums[name][tile] += sums_in_float64(values, dim=0)
    chosen = (
        (sums["child"] >= least_firings)
        & (sums["parent"] > sums["child"])
        & (sums["silent"] >= least_silence * sums["child"])
    )
    return AbsorptionPairs(
        parents=parents.cpu()[chosen],
        children=children.cpu()[chosen],
        cosines=rho.cpu()[chosen],
        A=sums["A"][chosen],
        B=(sums["energy"] * (1 - rho.cpu().double().square()))[chosen],
        alpha=(sums["leak"] / sums["C"])[chosen],
    )


def sums_in_float64(values: Tensor, *, dim: int) -> Tensor:
    """The sums of a batch, on the CPU; MPS, which has no float64, makes them in float32."""
    dtype = torch.float32 if values.device.type == "mps" else torch.float64
    return values.sum(dim=dim, dtype=dtype).cpu().double()


def _of_tokens(parent: Tensor, child: Tensor, rho: Tensor) -> dict[str, Tensor]:
    """The terms that are summed over the tokens, for every pair, of activations p and c."""
    fires, carried = child > 0, child * rho
    feature = parent + carried
    return {
        "A": parent.square() * ~fires,
        "C": feature.square() * fires,
        "leak": carried * feature,
        "energy": child.square(),
        "child": fires,
        "parent": parent > 0,
        "silent": fires & (parent == 0),
    }
