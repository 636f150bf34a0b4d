"""What a repair changed: an SAE before and after, in numbers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from rich.table import Table
from torch import Tensor

from sae_lens_c2r.analysis import chance_composition, composition
from sae_lens_c2r.inspection.behavior import Reconstruction
from sae_lens_c2r.inspection.measures import Inspection
from sae_lens_c2r.penalties.precision import unit_rows
from sae_lens_c2r.reporting.tables import terminal_table

_ROWS = {  # of the table: what they are called, and how their numbers are shown
    "composition": ("composition", ".3f"),
    "composition_of_live": ("composition of latents that fire", ".3f"),
    "pairs_above_0_9": ("pairs > 0.9", ","),
    "pairs_above_0_7": ("pairs > 0.7", ","),
    "explained_variance": ("explained variance", ".3f"),
    "l0": ("L0", ".1f"),
    "dead_latents": ("dead latents", ","),
    "cosine_median": ("cosine with before, median", ".3f"),
    "cosine_1st_percentile": ("cosine with before, 1st percentile", ".3f"),
}
_CHANCE = {"composition": "chance_composition", "composition_of_live": "chance_of_live"}
HEADINGS = ["before", "repaired", "chance level"]
NOTE = (
    "Composition: mean, over the latents, of the highest cosine with another latent's decoder "
    "row; below chance level, lower is not better. Pairs: of latents with a cosine above the "
    "number. Dead latents fire on no token of the text. Cosine: of each latent's decoder row "
    "with what it was."
)


@dataclass(frozen=True)
class MeasuredSAE:
    """An SAE, before or after, as the table shows it.

    Args:
        composition: Of all latents.
        chance_composition: What that is for random directions.
        composition_of_live: Of the latents that fire on the text, among themselves.
        chance_of_live: What that is for as many random directions.
        pairs_above_0_9: Pairs of latents with a cosine above 0.9.
        pairs_above_0_7: Pairs of latents with a cosine above 0.7.
        explained_variance: On the text.
        l0: On the text.
        dead_latents: Latents that do not fire on the text.
        cosine_median: Of the cosines of the latents with what they were.
        cosine_1st_percentile: Of the same.
    """

    composition: float
    chance_composition: float
    composition_of_live: float
    chance_of_live: float
    pairs_above_0_9: int
    pairs_above_0_7: int
    explained_variance: float
    l0: float
    dead_latents: int
    cosine_median: float
    cosine_1st_percentile: float

    @classmethod
    def of(
        cls, inspection: Inspection, on_text: Reconstruction, W_dec: Tensor, before: Tensor
    ) -> "MeasuredSAE":
        """What was found of an SAE.

        Args:
            inspection: Of its weights.
            on_text: Of what it does.
            W_dec: Its decoder.
            before: The decoder that it started from.

        Returns:
            The numbers.
        """
        live = W_dec[(on_text.times_fired > 0).to(W_dec.device)]
        enough = len(live) > 1
        kept = cosines(W_dec, before)
        above_0_9, above_0_7 = inspection.pairs
        return cls(
            composition=inspection.composition,
            chance_composition=inspection.chance_composition,
            composition_of_live=composition(live) if enough else 0.0,
            chance_of_live=chance_composition(*live.shape) if enough else 0.0,
            pairs_above_0_9=above_0_9,
            pairs_above_0_7=above_0_7,
            explained_variance=on_text.explained_variance,
            l0=on_text.l0,
            dead_latents=on_text.dead,
            cosine_median=kept.median().item(),
            cosine_1st_percentile=torch.quantile(kept, 0.01).item(),
        )


@torch.no_grad()
def cosines(W_dec: Tensor, before: Tensor) -> Tensor:
    """The cosine of each decoder row with the same one before."""
    return (unit_rows(W_dec.float()) * unit_rows(before.float())).sum(dim=-1).clamp(-1, 1)


@dataclass(frozen=True)
class Change:
    """An SAE before and after it was repaired."""

    sae_id: str
    before: MeasuredSAE
    after: MeasuredSAE


def change_rows(change: Change) -> list[list[str]]:
    """The rows of the table of one SAE."""
    before, after = asdict(change.before), asdict(change.after)
    rows = []
    for name, (title, shown) in _ROWS.items():
        chance = format(after[_CHANCE[name]], shown) if name in _CHANCE else ""
        rows.append([title, format(before[name], shown), format(after[name], shown), chance])
    return rows


def change_tables(changes: Sequence[Change]) -> list[Table]:
    """A table for each SAE, for `rich` to print; the last one explains them."""
    return [
        terminal_table(
            ["", *HEADINGS],
            change_rows(change),
            title=change.sae_id,
            note=NOTE if change is changes[-1] else None,
        )
        for change in changes
    ]
