"""Texts that a command names: files, and datasets on the Hub."""

import json
from pathlib import Path

from datasets import Dataset

from sae_lens_c2r._support.errors import UserError


def read_text(source: str) -> Dataset | str:
    """The documents of a file, in `.jsonl` those under `text`; any other name as it is."""
    path = Path(source)
    if not path.is_file():
        return source
    try:
        content = path.read_text(encoding="utf-8")
        texts = [content]
        if path.suffix == ".jsonl":
            texts = [json.loads(line)["text"] for line in content.splitlines() if line.strip()]
        texts = [text for text in texts if text.strip()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"`text` should be a text, in UTF-8. {path}: {error}") from None
    if not texts:
        raise UserError(f"`text` should not be empty. Found {path}.")
    return Dataset.from_dict({"text": texts})
