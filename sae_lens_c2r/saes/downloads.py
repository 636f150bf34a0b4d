"""What SAELens's loaders take from the Hub: which files, and of which revision."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sae_lens.loading import pretrained_sae_loaders

_DOWNLOAD = "hf_hub_download"  # by which SAELens's loaders get every file
_SNAPSHOTS = "snapshots"  # the folder of the commits in the Hub's cache


@contextmanager
def downloads(revision: str | None) -> Iterator[list[Path]]:
    """Have SAELens load SAEs as they were at a revision, which it cannot be asked for.

    Args:
        revision: A branch, a tag or a commit; `None` for what the Hub has today.

    Yields:
        The files that were loaded, in the Hub's cache.
    """
    files: list[Path] = []
    download = vars(pretrained_sae_loaders)[_DOWNLOAD]

    def noted(*arguments: Any, **options: Any) -> str:
        if revision is not None:
            options["revision"] = revision
        path: str = download(*arguments, **options)
        files.append(Path(path))
        return path

    with patch.object(pretrained_sae_loaders, _DOWNLOAD, noted):
        yield files


def commit_of(file: Path) -> str | None:
    """The commit of a file in the Hub's cache."""
    parts = file.parts
    return parts[parts.index(_SNAPSHOTS) + 1] if _SNAPSHOTS in parts else None
