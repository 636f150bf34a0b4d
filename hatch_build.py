"""What PyPI shows: the README, whose links lead to the repository and pictures to the site."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?:|#)([^)]+)\)")


class ReadmeOnPyPI(MetadataHookInterface):
    """The README as the long description, beside which nothing of the repository lies."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the long description to the project's metadata."""
        urls = metadata["urls"]

        def absolute(link: re.Match[str]) -> str:
            picture, label, name = link.groups()
            place = f"{urls['Repository']}/blob/main/{name}"
            if picture:
                place = urls["Documentation"] + name.removeprefix("docs/")
            return f"{picture}{label}({place})"

        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = _LINK.sub(absolute, text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
