"""Latents that somebody asks for, in context, with how strongly they fire."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from sae_lens import SAE, TrainingSAE
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.words import shortened
from sae_lens_c2r.inspection.activations import TextActivations
from sae_lens_c2r.inspection.contexts import Columns, Latent


@dataclass(frozen=True)
class LatentOnText:
    """A latent on a text.

    Args:
        latent: The latent, in context.
        activations: Its activations where it fires.
    """

    latent: Latent
    activations: Float[Tensor, " fires"]


def parse_latents(written: str) -> list[int]:
    """The latents that a command line names.

    Args:
        written: Their numbers, joined by commas: ``3,17``.

    Returns:
        The numbers, each once.

    Raises:
        UserError: If it is something else.
    """
    parts = [part.strip() for part in written.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,18}", part) for part in parts):
        shown = shortened(written, 60)
        raise UserError(f"`latents` should be numbers of latents, like 3,17. Found {shown}.")
    return list(dict.fromkeys(map(int, parts)))


def check_latents(wanted: Sequence[int], d_sae: int) -> None:
    """Raise unless an SAE has these latents."""
    too_high = [number for number in wanted if number >= d_sae]
    if too_high:
        raise UserError(
            f"`latents` should be below {d_sae:,}, the latents that there are. Found "
            f"{', '.join(map(str, too_high))}."
        )


def latents_on_text(
    sae: SAE[Any] | TrainingSAE[Any],
    text: TextActivations,
    tokenizer: Any,
    wanted: Sequence[int],
) -> list[LatentOnText]:
    """Latents in context.

    Args:
        sae: The SAE.
        text: What its model does on a text.
        tokenizer: The model's tokenizer.
        wanted: The latents.

    Returns:
        What they do on the text, in this order.
    """
    columns = Columns(sae, text, tokenizer, torch.tensor(wanted, dtype=torch.long))
    found = []
    for number in range(len(wanted)):
        acts = columns.acts[:, number]
        found.append(LatentOnText(columns.latent(number), acts[acts != 0].float()))
    return found
