"""JSON that other programs may have written: read with errors that name the file."""

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sae_lens_c2r._support.errors import UserError

Model = TypeVar("Model", bound=BaseModel)


def read_object(path: Path) -> dict[str, Any]:
    """The object of JSON that a file holds; a UserError if it holds none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} should be JSON. {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} should be an object of JSON. Found {type(content).__name__}.")
    return content


def read_model(path: Path, model: type[Model], *, written_by: str) -> Model:
    """Read a file of one of our commands; a UserError if it is not of that kind."""
    try:
        return model.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        reason = first_problem(error) if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{path} should be written by {written_by}. {reason}") from None


def first_problem(error: ValidationError) -> str:
    """The first key that is wrong, and what is wrong with its value."""
    first = error.errors()[0]
    return f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}."
