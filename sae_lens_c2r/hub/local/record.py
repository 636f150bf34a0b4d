"""What a `training.json` says that a card repeats."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.local.leaks import refuse_secrets
from sae_lens_c2r.training.record import RECORD


class RecordedModel(BaseModel):
    """The language model, as of `sae_lens_c2r.releases.model.LanguageModel`."""

    hub_id: str | None = None
    dataset: str | None = None
    context_size: int | None = None


class RecordedRelease(BaseModel):
    """The release, as of `sae_lens_c2r.releases.model.Release`."""

    description: str | None = None
    license: str | None = None
    language_model: RecordedModel | None = None


class Record(BaseModel):
    """The training of one SAE, as of `sae_lens_c2r.training.record.record_of`."""

    release: RecordedRelease | None = None
    sae_id: str | None = None
    samples: int | None = None
    steps: int | None = None
    device: str | None = None
    versions: dict[str, str] = {}

    @property
    def model(self) -> RecordedModel:
        """The language model; an empty one if none was recorded."""
        return (self.release and self.release.language_model) or RecordedModel()


def read_record(folder: Path) -> Record | None:
    """Read an SAE's `training.json`.

    Args:
        folder: The SAE's.

    Returns:
        What it says; `None` if there is none.

    Raises:
        UserError: If it is not as we write it, or seems to hold a secret.
    """
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        return Record.model_validate(read_object(path))
    except ValidationError as error:
        raise UserError(f"{path} should be written by a training. {first_of(error)}") from None


def read_object(path: Path) -> dict[str, Any]:
    """Read a file that should hold an object of JSON.

    Args:
        path: The file.

    Returns:
        Its content.

    Raises:
        UserError: If it holds none, or seems to hold a secret.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} should be JSON. {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} should be an object of JSON. Found {type(content).__name__}.")
    refuse_secrets(path, json.dumps(content, ensure_ascii=False))
    return content


def first_of(error: ValidationError) -> str:
    """The first of the things that are wrong.

    Args:
        error: Of pydantic.

    Returns:
        The key, and what is wrong with it.
    """
    first = error.errors()[0]
    return f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}."
