"""The error of which a command prints the text, and nothing else."""


class UserError(ValueError):
    """What keeps a command from doing what it should, in one line for its user."""
