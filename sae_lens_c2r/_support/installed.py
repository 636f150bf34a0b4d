"""Versions of packages, and folders of data that come with this one."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def package_versions(*packages: str) -> dict[str, str]:
    """The versions of packages, without those that are not installed."""
    versions = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def data_folder(name: str) -> Path:
    """A folder of data: inside an installed package, or at the root of a checkout."""
    package = Path(__file__).parent.parent
    installed = package / name
    return installed if installed.is_dir() else package.parent / name
