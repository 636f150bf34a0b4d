"""Files beside an SAE's weights, read for what may be published of them."""

from pathlib import Path
from typing import Any

from sae_lens_c2r._support import reading
from sae_lens_c2r.hub.local.leaks import refuse_secrets
from sae_lens_c2r.training import record
from sae_lens_c2r.training.record import TrainingRecord


def read_record(folder: Path) -> TrainingRecord | None:
    """What training recorded of an SAE.

    Args:
        folder: The SAE's.

    Returns:
        The record; `None` if the folder has none.

    Raises:
        UserError: If it is not as we write it, or seems to hold a secret.
    """
    path = folder / record.RECORD
    if path.is_file():
        read_object(path)
    return record.read_record(folder)


def read_object(path: Path) -> dict[str, Any]:
    """The content of a file that should hold an object of JSON.

    Args:
        path: The file.

    Returns:
        The object.

    Raises:
        UserError: If it holds none, or seems to hold a secret.
    """
    content = reading.read_object(path)
    refuse_secrets(path, path.read_bytes())
    return content
