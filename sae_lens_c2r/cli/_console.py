"""What commands print."""

from rich.console import Console


def console_while_loading(*, quiet: bool = False) -> Console:
    """A console that has said what takes the first seconds: importing SAELens."""
    console = Console(quiet=quiet)
    console.print("Loading SAELens ...")
    return console


def say(console: Console, line: str) -> None:
    """Print a line with paths and names in it: neither read as markup nor wrapped."""
    console.print(line, markup=False, soft_wrap=True)
