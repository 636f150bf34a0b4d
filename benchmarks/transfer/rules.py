"""The rule that makes lambda transfer, and what is left of it without each factor."""

import math
from dataclasses import dataclass

from sae_lens_c2r.penalties.gates import Gate
from sae_lens_c2r.penalties.scaling import (
    PAPER_BATCH_SIZE,
    PAPER_CANDIDATES,
    PAPER_D_IN,
    PAPER_D_SAE,
)

# Wider for the excess gate, whose strength nobody knew beforehand.
LAMBDAS: dict[Gate, tuple[float, ...]] = {
    "relu": (0.0, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 100.0),
    "excess": (0.0, 0.1, 0.5, 2.0, 10.0, 50.0, 200.0, 1000.0),
}
FACTORS: dict[Gate, tuple[str, ...]] = {
    "relu": ("r", "sqrt(k/B)", "d", "ln n"),
    "excess": ("r", "sqrt(k/B)"),
}


@dataclass(frozen=True, order=True)
class Setting:
    """What lambda should not depend on."""

    data: str
    batch_size: int
    d_sae: int
    d_in: int
    scale: float


def factors(setting: Setting, norm: float) -> dict[str, float]:
    """All factors that a rule may have, for inputs of the given norm."""
    candidates = min(PAPER_CANDIDATES, setting.d_sae)
    per_latent = (setting.d_sae / setting.batch_size) / (PAPER_D_SAE / PAPER_BATCH_SIZE)
    return {
        "r": norm,
        "sqrt(k/B)": math.sqrt(per_latent),
        "d": setting.d_in / PAPER_D_IN,
        "ln n": math.log(PAPER_CANDIDATES) / math.log(candidates),
    }


def rules(setting: Setting, norm: float, gate: Gate) -> dict[str, float]:
    """What each rule multiplies lambda by to get the literal coefficient.

    Args:
        setting: Where.
        norm: The inputs' norm.
        gate: Whose rule it is: one without each of its factors, and one with each other.

    Returns:
        The products, by the names of the rules.
    """
    parts = factors(setting, norm)
    whole = math.prod(parts[name] for name in FACTORS[gate])
    without = {f"without {name}": whole / parts[name] for name in FACTORS[gate]}
    more = {f"with {name}": whole * parts[name] for name in parts if name not in FACTORS[gate]}
    return {"the rule": whole, **without, **more, "none": 1.0}
