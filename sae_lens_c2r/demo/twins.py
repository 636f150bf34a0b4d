"""What another SAE has in place of two latents that are alike: one, or two turned apart."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from sae_lens import SAE
from torch import Tensor

from sae_lens_c2r.analysis import pair_jaccards, pairs_above
from sae_lens_c2r.inspection.activations import TextActivations, encode
from sae_lens_c2r.penalties.precision import unit_rows

ALIKE = 0.7  # the cosine above which two latents are twins
TOGETHER = 0.5  # the Jaccard above which they fire together
Kind = Literal["merged", "apart and firing together", "apart", "still alike"]


@dataclass(frozen=True)
class Twins:
    """The pairs of live latents of an SAE that are alike, and what another has for them.

    Args:
        kinds: What became of each pair.
        before: Its Jaccard.
        after: The Jaccard of the latents in its place; 1 for one that it was merged into.
    """

    kinds: list[Kind]
    before: Float[Tensor, " pairs"]
    after: Float[Tensor, " pairs"]

    def summary(self) -> dict[str, float | None]:
        """How many pairs are of each kind, and their Jaccard; that after of two latents."""
        two = torch.tensor([kind != "merged" for kind in self.kinds], dtype=torch.bool)
        return {
            "pairs": len(self.kinds),
            **{kind.replace(" ", "_"): self.kinds.count(kind) for kind in get_args(Kind)},
            "jaccard_before": _mean(self.before),
            "jaccard_of_two_after": _mean(self.after[two]),
        }

    def sentence(self, plain: str, other: str) -> str:
        """What became of them, in words, with the names of both SAEs."""
        n = {kind: f"{self.kinds.count(kind):,}" for kind in get_args(Kind)}
        said = (
            f"Of {len(self.kinds):,} pairs of latents of {plain} with a cosine above {ALIKE}, "
            f"{other} has {n['merged']} merged into one latent, "
            f"{n['apart and firing together']} apart and firing together (Jaccard above "
            f"{TOGETHER}), {n['apart']} apart, {n['still alike']} still alike."
        )
        means = self.summary()
        if means["jaccard_of_two_after"] is not None:
            said += (
                f" Their mean Jaccard was {means['jaccard_before']:.2f}; where there are two "
                f"latents now, it is {means['jaccard_of_two_after']:.2f}."
            )
        return said


def kind_of(*, one: bool, cosine: float, jaccard: float) -> Kind:
    """What became of two latents, of the one or the two latents in their place."""
    if one:
        return "merged"
    if cosine > ALIKE:
        return "still alike"
    return "apart and firing together" if jaccard > TOGETHER else "apart"


@torch.no_grad()
def find_twins(
    plain: SAE[Any],
    other: SAE[Any],
    text: TextActivations,
    *,
    fires: Bool[Tensor, " d_sae"],
    other_fires: Bool[Tensor, " d_sae"],
) -> Twins:
    """Every pair of an SAE's latents that are alike, and what another SAE has for it.

    Args:
        plain: The SAE.
        other: The other one.
        text: What their model does on a text.
        fires: Which latents of the SAE fire there.
        other_fires: Which of the other one do.

    Returns:
        What became of the pairs.
    """
    pairs = pairs_above(plain.W_dec, ALIKE)
    pairs = pairs[fires.to(pairs.device)[pairs].all(dim=1)]
    _, latents = replacements(plain, other, pairs.flatten(), other_fires=other_fires)
    places = latents.view(-1, 2)
    rows = unit_rows(other.W_dec)
    cosines = (rows[places[:, 0]] * rows[places[:, 1]]).sum(dim=1)
    before = pair_jaccards(_latents_of(plain, text), pairs)
    after = pair_jaccards(_latents_of(other, text), places)
    one = places[:, 0] == places[:, 1]
    each = zip(one.tolist(), cosines.tolist(), after.tolist(), strict=True)
    return Twins([kind_of(one=o, cosine=c, jaccard=j) for o, c, j in each], before, after)


def replacements(
    plain: SAE[Any],
    other: SAE[Any],
    latents: Int[Tensor, " n"],
    *,
    other_fires: Bool[Tensor, " d_sae"],
) -> tuple[Float[Tensor, " n"], Int[Tensor, " n"]]:
    """Of each latent the nearest of another SAE that fires, by their decoder rows.

    Returns:
        The cosines, and the latents.
    """
    rows, other_rows = unit_rows(plain.W_dec[latents]), unit_rows(other.W_dec)
    cosines = (rows @ other_rows.T).masked_fill(~other_fires.to(rows.device), -torch.inf)
    highest, nearest = cosines.max(dim=1)
    return highest, nearest


def _latents_of(sae: SAE[Any], text: TextActivations) -> Iterator[Tensor]:
    return (acts for _, acts in encode(sae, text))


def _mean(values: Tensor) -> float | None:
    return values.mean().item() if len(values) else None
