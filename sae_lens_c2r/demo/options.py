"""The options of the demo, checked before any work is done."""

from dataclasses import dataclass
from pathlib import Path

import torch

from sae_lens_c2r._support.checks import check_integer, check_non_negative, message
from sae_lens_c2r._support.errors import UserError

PLAIN, REGULARIZED = "batchtopk", "batchtopk_c2r"
BATCH_SIZE = 2048


@dataclass(frozen=True)
class DemoOptions:
    """The options of `sae-lens-c2r demo`.

    Args:
        out: Folder for everything it writes.
        tokens: Tokens of training.
        d_sae: Latents of each SAE.
        k: Latents active per token, on average over a batch.
        c2r_coefficient: Strength of the penalty.
        seed: Seed of the weights, of the split of the text and of the order of the data.
        device: Torch device to train on.
        overwrite: Whether `out` may hold files already.

    Raises:
        TypeError: If a number is of the wrong type.
        ValueError: If a number is out of its range.
    """

    out: Path
    tokens: int = 400_000
    d_sae: int = 4096
    k: int = 32
    c2r_coefficient: float = 5.0
    seed: int = 0
    device: str = "cpu"
    overwrite: bool = False

    def __post_init__(self) -> None:
        check_integer("tokens", self.tokens, minimum=BATCH_SIZE)
        check_integer("d_sae", self.d_sae, minimum=2)
        check_integer("k", self.k, minimum=1)
        if self.k > self.d_sae:
            raise ValueError(message("k", f"be at most `d_sae = {self.d_sae}`", self.k))
        check_non_negative("c2r_coefficient", self.c2r_coefficient)
        check_integer("seed", self.seed, minimum=0)
        if self.seed >= 2**63:
            raise ValueError(message("seed", "be below 2**63", self.seed))
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            should = "be a torch device that this machine has"
            raise ValueError(message("device", should, self.device)) from error

    def check_out(self) -> None:
        """Raise unless `out` is an empty folder, is to be made or may be overwritten."""
        if self.out.exists() and not self.out.is_dir():
            raise UserError(f"`out` should be a folder. Found a file: {self.out}")
        if not self.overwrite and self.out.is_dir() and any(self.out.iterdir()):
            raise UserError(
                f"`out` should be empty. Found files in {self.out}; "
                "choose another folder, or replace the demo's files there with --overwrite."
            )
