"""The error whose text a command prints, and helpers for such texts."""

import re
from functools import cache
from logging import getLogger
from pathlib import Path

# By their names: httpx, requests, datasets and the Hub's client each have some of their own.
_UNREACHED = {"ConnectionError", "TransportError", "LocalEntryNotFoundError"}


class UserError(ValueError):
    """An error that a command prints in one line.

    It says what a field should be or do, what was found, and what more there is to say. A field
    is a parameter's name, a file's path, or else the whole text. `of` names the SAE or the file
    that it belongs to.
    """

    def __init__(
        self,
        field: str | Path,
        should: str = "",
        found: object = "",
        more: str = "",
        *,
        of: object = "",
    ) -> None:
        self.field, self.should, self.found = field, should, str(found)
        self.more, self.of = more, str(of)
        super().__init__(field, should, self.found, more)  # of which another process makes it

    def __str__(self) -> str:
        return self.told()

    def told(self, option: str | None = None) -> str:
        """The error's text; its field may be named as the option that was typed."""
        text = f"{self.of}: " if self.of else ""
        if self.should:
            name = f"`{option or self.field}`" if isinstance(self.field, str) else self.field
            text += f"{name} should {self.should}."
            text += f" Found {self.found.removesuffix('.')}." if self.found else ""
        else:
            text += str(self.field)
        return f"{text} {self.more}".rstrip()


def error_of(name: object, error: BaseException) -> UserError:
    """An error of any library, or of ours, as one of what has a name."""
    if isinstance(error, UserError) and not error.of:
        return UserError(error.field, error.should, error.found, error.more, of=name)
    named = UserError(f"{name}: {reason(error)}")
    named.__cause__ = error  # for its traceback
    return named


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
    kind, sentence = type(error).__name__, first_sentence(error)
    return kind if sentence == kind else f"{kind}: {sentence}"


def counted(number: float, one: str) -> str:
    """A number and its noun: `1 SAE`, `2 SAEs`."""
    shown = f"{number:,.0f}"
    return f"{shown} {one}" if shown == "1" else f"{shown} {one}s"


def shortened(text: str, most: int) -> str:
    """A text cut to so many characters at most, with an ellipsis where it was cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


@cache
def tell_once(line: str) -> None:
    """Warn of something, but not again each time that it is met."""
    getLogger(__name__).warning(line)


def is_of_network(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, says that the Hub was not reached."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if not _UNREACHED.isdisjoint(kind.__name__ for kind in type(error).__mro__):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False
