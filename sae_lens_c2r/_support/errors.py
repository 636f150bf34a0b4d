"""The error of which a command prints the text, and nothing else."""


class UserError(ValueError):
    """What keeps a command from doing what it should, in one line for its user."""


def one_line(error: BaseException) -> str:
    """The text of an error of any library, on one line; its type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__
