"""The rule that makes lambda transfer, and what is left of it without each factor."""

import math
from dataclasses import dataclass

from sae_lens_c2r.penalties import transfer_factor
from sae_lens_c2r.penalties.scaling import (
    PAPER_BATCH_SIZE,
    PAPER_CANDIDATES,
    PAPER_D_IN,
    PAPER_D_SAE,
)

LAMBDAS = (0.0, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True, order=True)
class Setting:
    """What lambda should not depend on."""

    data: str
    batch_size: int
    d_sae: int
    d_in: int
    scale: float


def factors(setting: Setting, norm: float) -> dict[str, float]:
    """The rule's factors, for inputs of the given norm; their product is the rule."""
    candidates = min(PAPER_CANDIDATES, setting.d_sae)
    per_latent = (setting.d_sae / setting.batch_size) / (PAPER_D_SAE / PAPER_BATCH_SIZE)
    parts = {
        "r": norm,
        "sqrt(k/B)": math.sqrt(per_latent),
        "d": setting.d_in / PAPER_D_IN,
        "ln n": math.log(PAPER_CANDIDATES) / math.log(candidates),
    }
    rule = norm * transfer_factor(
        batch_size=setting.batch_size,
        d_sae=setting.d_sae,
        d_in=setting.d_in,
        chunk_size=PAPER_CANDIDATES,
    )
    assert math.isclose(math.prod(parts.values()), rule), "not the library's rule"
    return parts


def rules(setting: Setting, norm: float) -> dict[str, float]:
    """What each rule multiplies lambda by to get the literal coefficient."""
    parts = factors(setting, norm)
    whole = math.prod(parts.values())
    without = {f"without {name}": whole / part for name, part in parts.items()}
    return {"the rule": whole, **without, "none": 1.0}
