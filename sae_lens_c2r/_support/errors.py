"""The error of which a command prints the text, and nothing else."""

import re

from sae_lens_c2r._support.words import shortened

_MOST = 300  # characters of an error that is not ours


class UserError(ValueError):
    """What keeps a command from doing what it should, in one line for its user."""


def one_line(error: BaseException) -> str:
    """The text of an error of any library, on one line; its type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def first_sentence(error: BaseException) -> str:
    """What an error of any library begins with: some go on to list all names that there are."""
    sentence = re.split(r"(?<=[.!?:]) (?=[A-Z\[])", one_line(error))[0]
    return shortened(sentence, _MOST)
