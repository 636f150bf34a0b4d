"""Words that depend on a number."""


def counted(number: float, noun: str) -> str:
    """A number and a noun: "1 SAE", "2 SAEs", "1,024 tokens"."""
    shown = f"{number:,.0f}"
    return f"{shown} {noun}{'' if shown == '1' else 's'}"
