"""Deliberate faults, planted one at a time by `python -m tests.mutations`.

Each is a real error of mathematics, of resuming, of privacy or of a commit. In `faults.txt` a
group begins with the folder that its code lies in and the tests that are to catch it; a fault
is a name, a piece of code that stands in one file of the folder, and what takes its place.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "sae_lens_c2r"


@dataclass(frozen=True)
class Fault:
    """A deliberate fault: in which folder, what takes the place of what, and who notices."""

    name: str
    folder: str
    old: str
    new: str
    tests: tuple[str, ...]

    def files(self, package: Path = PACKAGE) -> list[Path]:
        """The files that have the code: one, as long as the fault fits."""
        files = sorted((package / self.folder).rglob("*.py"))
        return [path for path in files if self.old in path.read_text()]

    def fits(self) -> bool:
        """Whether one file has the code, is Python with the fault, and the tests are there."""
        try:
            [path] = self.files()
            ast.parse(path.read_text().replace(self.old, self.new))
        except (ValueError, SyntaxError):
            return False
        return all((PACKAGE.parent / test).exists() for test in self.tests)

    def plant(self, package: Path) -> None:
        """Put the fault into a copy of the package."""
        (path,) = self.files(package)
        path.write_text(path.read_text().replace(self.old, self.new))

    def __str__(self) -> str:
        return f"{self.folder}: {self.name}"


def read_faults(text: str) -> list[Fault]:
    """The faults of `faults.txt`."""
    faults: list[Fault] = []
    folder, tests = "", tuple[str, ...]()
    for block in text.strip().split("\n\n"):
        if block.startswith("# "):
            folder, _, names = block.removeprefix("# ").partition(": ")
            tests = tuple(names.split())
        else:
            name, old, new = block.splitlines()
            old, new = old.removeprefix("- "), new.removeprefix("+").removeprefix(" ")
            faults.append(Fault(name, folder, old, new, tests))
    return faults


FAULTS = read_faults(Path(__file__).with_name("faults.txt").read_text())
