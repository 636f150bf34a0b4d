"""Where a text lies, and which part of it is read. Nothing here imports `datasets`."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

OFFLINE_DATASET = "python-documentation"  # the built-in text
PARTS = ("split", "subset", "column")  # of a dataset
_LIKE_A_FILE = re.compile(r".*\.(?!v\d)(md|gz|xz|parquet|[a-z][a-z\d]{2,5})", re.IGNORECASE)


def looks_like_a_file(name: str) -> bool:
    """Whether a name ends as a file's may: notes.eml does, data-v1.5 and data.v2 do not."""
    return bool(_LIKE_A_FILE.fullmatch(name))


@dataclass(frozen=True)
class TextSource:
    """Where a text lies, and which part of it is read."""

    dataset: str  # a file, a folder, a dataset on the Hub, or the built-in text
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
        """The file or folder; `None` for the built-in text and for datasets on the Hub."""
        if self.dataset == OFFLINE_DATASET:
            return None
        is_place = os.path.isabs(self.dataset) or self.dataset.startswith(".")
        return Path(self.dataset) if is_place or os.path.exists(self.dataset) else None

    @property
    def place(self) -> str:
        """Where it lies, whichever way that is spelled."""
        return str(self.path.resolve()) if self.path else self.dataset

    @property
    def hub_id(self) -> str | None:
        """The dataset's name on the Hub, if it is read from there."""
        is_here = self.path is not None or self.dataset == OFFLINE_DATASET
        return None if is_here else self.dataset
