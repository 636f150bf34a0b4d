"""The error whose text a command prints, and helpers for such texts."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

# By their names: httpx, requests, datasets and the Hub's client each have some of their own.
_UNREACHED = {"ConnectionError", "TransportError", "LocalEntryNotFoundError"}


class UserError(ValueError):
    """An error whose text tells a user in one line why a command cannot do what it should."""


def one_line(error: BaseException) -> str:
    """The text of an error of any library, on one line; its type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def first_sentence(error: BaseException) -> str:
    """The first sentence of any library's error: some errors list every known name."""
    sentence = re.split(r"(?<=[.!?]) (?=[A-Z\[])|(?<=:) (?=\[)", one_line(error))[0]
    return shortened(sentence, 300)


def reason(error: BaseException) -> str:
    """The text of our own error, on one line; of another, its type and first sentence."""
    if isinstance(error, UserError):
        return one_line(error)
    return f"{type(error).__name__}: {first_sentence(error)}"


def counted(number: float, one: str) -> str:
    """A number and its noun: `1 SAE`, `2 SAEs`."""
    shown = f"{number:,.0f}"
    return f"{shown} {one}" if shown == "1" else f"{shown} {one}s"


def shortened(text: str, most: int) -> str:
    """A text cut to so many characters at most, with an ellipsis where it was cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


@contextmanager
def needing_the_hub(what: str) -> Iterator[None]:
    """Name the network in a UserError where the network fails."""
    try:
        yield
    except Exception as error:
        if not is_of_network(error):
            raise
        from huggingface_hub import constants

        offline = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "no network"
        raise UserError(
            f"{what} is not on this machine, and the Hub cannot be reached: {offline}. A "
            "folder or a file here needs no network."
        ) from error


def is_of_network(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, says that the Hub was not reached."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if not _UNREACHED.isdisjoint(kind.__name__ for kind in type(error).__mro__):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False
