"""Numbers and what is cited, in sentences."""


def counted(number: float, one: str, many: str | None = None) -> str:
    """A number and what it is of: `1 SAE`, `2 SAEs`."""
    shown = f"{number:,.0f}"
    return f"{shown} {one if shown == '1' else many or one + 's'}"


def shortened(text: str, most: int) -> str:
    """A text of so many characters at most, of which the last one says that there were more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
