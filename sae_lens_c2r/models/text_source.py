"""Where a text lies, and which part of it is read."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DATASET = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
COMPRESSED = {".gz", ".gzip", ".bz2", ".xz", ".zst", ".zip"}
LOADERS: dict[str, tuple[str, dict[str, Any]]] = {  # of `datasets`, by the endings of files
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), ("json", {})),
    **{".csv": ("csv", {}), ".tsv": ("csv", {"sep": "\t"})},
    **{".parquet": ("parquet", {}), ".arrow": ("arrow", {})},
}  # any other ending is one of plain text
_ENDINGS = {".txt", ".md", ".html", *LOADERS, *COMPRESSED}  # which nobody gives a dataset
_LIKE_A_FILE = re.compile(r".*\.(?!v\d)[a-z][a-z\d]{2,5}", re.IGNORECASE)


def looks_like_a_file(name: str) -> bool:
    """Whether a name ends as a file's may: notes.eml does, data-v1.5 and data.v2 do not."""
    return bool(_LIKE_A_FILE.fullmatch(name)) or Path(name).suffix.lower() in _ENDINGS


PARTS = ("split", "subset", "column")  # of a dataset


@dataclass(frozen=True)
class TextSource:
    """Where a text lies, and which part of it is read."""

    dataset: str  # a file, a folder, a dataset on the Hub, or one of ours
    split: str | None = None
    subset: str | None = None
    column: str | None = None

    @property
    def part(self) -> dict[str, str]:
        """The part of the dataset that is named."""
        return {name: value for name in PARTS if (value := getattr(self, name)) is not None}

    @property
    def shown(self) -> str:
        """The name in reports: what tells one text from another."""
        part = ", ".join(f"{name} {value}" for name, value in self.part.items())
        return f"{self.dataset} ({part})" if part else self.dataset

    @property
    def path(self) -> Path | None:
        """The place of a file or folder; `None` for a dataset's name on the Hub."""
        path = Path(self.dataset)
        may_be_a_name = _DATASET.fullmatch(self.dataset) and path.suffix not in _ENDINGS
        return path if os.path.lexists(path) or not may_be_a_name else None
