"""Numbers in sentences."""


def counted(number: float, one: str, many: str | None = None) -> str:
    """A number and what it is of: `1 SAE`, `2 SAEs`."""
    shown = f"{number:,.0f}"
    return f"{shown} {one if shown == '1' else many or one + 's'}"
