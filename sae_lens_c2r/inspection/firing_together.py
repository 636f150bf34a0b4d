"""How much latents fire together, as a table shows it."""

from sae_lens_c2r.analysis import CoFiring
from sae_lens_c2r.analysis.cofiring import JACCARDS

HEADINGS_TOGETHER = [
    "highest\nJaccard",
    "chance\nlevel",
    *(f"pairs\n> {above}" for above in JACCARDS),
]
NOTE_TOGETHER = (
    "Jaccard of two latents: of the tokens on which either fires, the share on which both do. "
    "Highest Jaccard: of each latent with another, mean over those that fire; chance level: "
    "what that is if they fire independently. Pairs: of latents with a Jaccard above the "
    "number. They fire on the same tokens: composition can fall while these stay."
)


def cells_together(found: CoFiring) -> list[str]:
    """The cells of an SAE, beside its name."""
    pairs = (f"{found.pairs[above]:,}" for above in JACCARDS)
    return [f"{found.mean:.3f}", f"{found.chance:.3f}", *pairs]
