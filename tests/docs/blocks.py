"""The blocks of code on the pages: in the README, in the guide, in what developers read.

A block is run by the tests, unless the line before it says `<!-- needs: ... -->`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.forkserver import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NEEDS = {"a GPU", "GPUs", "an account", "minutes", "hours", "the network"}
SHELL, PYTHON, SHOWN = {"sh", "bash"}, {"python"}, {"text", "yaml", "bibtex", "diff"}
_BLOCK = re.compile(
    r"(?:^<!-- needs: ([^\n]*) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A block of code on a page."""

    page: Path
    language: str
    text: str
    needs: str | None


def blocks_of(page: Path) -> list[Block]:
    """Every block of a page."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [Block(page, language, text, needs or None) for needs, language, text in found]


def to_run(page: Path, languages: set[str]) -> list[str]:
    """What is run of a page, in these languages."""
    blocks = blocks_of(page)
    return [block.text for block in blocks if block.language in languages and not block.needs]
