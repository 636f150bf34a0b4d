"""The error of which a command prints the text, and nothing else."""

import re

from sae_lens_c2r._support.words import shortened

_MOST = 300  # characters of an error that is not ours


class UserError(ValueError):
    """An error whose text tells a user in one line why a command cannot do what it should."""


def one_line(error: BaseException) -> str:
    """The text of an error of any library, on one line; its type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def first_sentence(error: BaseException) -> str:
    """The first sentence of any library's error: some go on to list all names there are."""
    sentence = re.split(r"(?<=[.!?:]) (?=[A-Z\[])", one_line(error))[0]
    return shortened(sentence, _MOST)
