"""What a repair can be told."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sae_lens_c2r._support.checks import check_integer, check_positive
from sae_lens_c2r._support.errors import UserError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_NUMBER = re.compile(
    r"((?:\d+|\d{1,3}(?:,\d{3})+|\d{1,3}(?:_\d{3})+)(?:\.\d+)?)([kmb]?)", re.IGNORECASE
)


@dataclass(frozen=True)
class RepairOptions:
    """What the SAEs themselves do not say, and what is to be other than they say.

    Args:
        tokens: What to train on.
        model: The language model on the Hub.
        hook_name: Where its activations are taken.
        dataset: The text on the Hub.
        context_size: Tokens in a row.
        architecture: What to train the SAEs as.
        k: Latents per token.
        lr: The learning rate; by itself a third of that which an SAE was trained with.
        c2r_coefficient: Strength of the penalty.
        changes: Values of the release that is made of all this, by dotted key.

    Raises:
        UserError: If a number is not above 0, or `context_size` is not above 1.
    """

    tokens: int
    model: str | None = None
    hook_name: str | None = None
    dataset: str | None = None
    context_size: int | None = None
    architecture: str | None = None
    k: float | None = None
    lr: float | None = None
    c2r_coefficient: float | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the numbers."""
        try:
            for name in ("k", "lr"):
                if getattr(self, name) is not None:
                    check_positive(name, getattr(self, name))
            if self.context_size is not None:
                check_integer("context_size", self.context_size, minimum=2)
        except (TypeError, ValueError) as error:
            raise UserError(str(error)) from None


def count_of(text: str) -> int:
    """The number that a text like 5M, 40k or 5_000_000 says; a UserError if it says none."""
    found = _NUMBER.fullmatch(text.strip())
    count = 0
    if found:
        digits = found[1].replace("_", "").replace(",", "")
        count = round(float(digits) * _UNITS[found[2].lower()])
    if count < 1:
        raise UserError(f"`tokens` should be a number like 5M or 400k. Found {text!r}.")
    return count
