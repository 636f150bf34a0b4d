"""The versions of installed packages: numbers may come out differently by them."""

from importlib.metadata import PackageNotFoundError, version


def package_versions(*packages: str) -> dict[str, str]:
    """The versions of packages, without those that are not installed."""
    versions = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
