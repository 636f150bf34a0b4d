"""Other libraries: their versions, and SAELens's false alarms."""

import logging
import platform
import warnings
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

_WARNINGS = (
    "Dataset is not tokenized",  # to do so takes little time beside the model
    r"\s*This SAE has non-empty model_from_pretrained_kwargs",  # which we give the model
)
_LOGGED = (
    *("override_dataset overrides", "override_model overrides"),  # `training.json` says by what
    "Error during view operation",  # of all heads: SAELens then reshapes, as it says next
)


def package_versions(*packages: str) -> dict[str, str]:
    """The versions of packages, without those that are not installed."""
    versions = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def versions() -> dict[str, str]:
    """The versions that matter where something is reported, by name."""
    names = ("sae-lens-c2r", "sae-lens", "torch", "transformers", "huggingface-hub")
    return {**package_versions(*names), "Python": platform.python_version()}


def silence_false_alarms() -> None:
    """Have this process show no false alarm of those above."""
    for message in _WARNINGS:
        warnings.filterwarnings("ignore", message, UserWarning, "sae_lens")
    logging.getLogger("sae_lens").addFilter(_is_no_false_alarm)


def _is_no_false_alarm(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_LOGGED)
