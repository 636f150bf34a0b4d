"""Failures of the network, told apart from what is wrong with a model or a text."""

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import constants

from sae_lens_c2r._support.errors import UserError

# By their names: httpx, requests, datasets and the Hub's client each have some of their own.
_UNREACHED = {"ConnectionError", "TransportError", "LocalEntryNotFoundError"}


@contextmanager
def needing_the_hub(what: str) -> Iterator[None]:
    """Name the network where that is what fails."""
    try:
        yield
    except Exception as error:
        if not is_of_network(error):
            raise
        offline = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "no network"
        raise UserError(
            f"{what} is not on this machine, and the Hub cannot be reached: {offline}. A "
            "folder or a file here needs no network."
        ) from error


def is_of_network(error: BaseException | None) -> bool:
    """Whether an error, or one that it came of, says that the Hub was not reached."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if not _UNREACHED.isdisjoint(kind.__name__ for kind in type(error).__mro__):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False
