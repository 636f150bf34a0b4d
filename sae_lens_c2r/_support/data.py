"""Folders of data that come with this package."""

from pathlib import Path


def data_folder(name: str) -> Path:
    """Where a folder lies: inside an installed package, or at the root of a checkout."""
    package = Path(__file__).parent.parent
    installed = package / name
    return installed if installed.is_dir() else package.parent / name
