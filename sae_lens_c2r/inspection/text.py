"""Texts that a command names: files, and datasets on the Hub."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from datasets import Dataset
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from sae_lens_c2r._support.errors import UserError, first_sentence
from sae_lens_c2r._support.network import is_of_network
from sae_lens_c2r._support.words import shortened

COLUMN = "text"  # of a dataset, unless it has rows of tokens
_ENDINGS = (".txt", ".jsonl", ".json", ".md")  # which nobody gives a dataset


def read_text(source: str) -> Dataset | str:
    """The documents of a file, in `.jsonl` those under `text`; the name of a dataset as it is.

    Args:
        source: A file, a folder, or the name of a dataset on the Hub.

    Returns:
        What SAELens reads the text from.

    Raises:
        UserError: If it is none of them, or a file without text.
    """
    path = Path(source)
    if not path.is_file():
        _check_dataset(source, path)
        return source
    try:
        content = path.read_text(encoding="utf-8")
        texts = [content]
        if path.suffix == ".jsonl":
            texts = [_text_of(line) for line in content.splitlines() if line.strip()]
    except ValueError as error:
        raise UserError(f"`text` should be a text, in UTF-8. {path}: {error}") from None
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise UserError(f"`text` should not be empty. Found {path}.")
    return Dataset.from_dict({COLUMN: texts})


def _text_of(line: str) -> str:
    """The text of a line of JSON."""
    found = json.loads(line)
    if not isinstance(found, dict) or not isinstance(found.get(COLUMN), str):
        shown = shortened(line, 40)
        raise ValueError(f'a line should be like {{"{COLUMN}": "words"}}. Found {shown}')
    return str(found[COLUMN])


@contextmanager
def reading(named: str) -> Iterator[None]:
    """Name the text where what fails is to read it.

    Args:
        named: What the text is called.

    Yields:
        Nothing.

    Raises:
        UserError: If it cannot be read, for another reason than the network.
    """
    try:
        yield
    except Exception as error:  # datasets, pyarrow and SAELens raise many kinds
        if is_of_network(error):
            raise
        raise UserError(
            f"`text` should be text that can be read. {named}: {first_sentence(error)}"
        ) from error


def _check_dataset(source: str, path: Path) -> None:
    """Raise unless what is no file may be a dataset."""
    if path.is_dir():
        return
    if path.exists():
        raise UserError(f"`text` should be a file that can be read twice. {path} is none.")
    try:
        validate_repo_id(source)
    except HFValidationError:
        known = False
    else:
        known = path.suffix not in _ENDINGS
    if not known:
        raise UserError(f"`text` should be a file or a dataset on the Hub. There is no {path}.")


def too_short(n_tokens: int, text: Dataset | str, tokenizer: Any) -> UserError:
    """The error of a text that does not fill a row of so many tokens."""
    found = ""
    if isinstance(text, Dataset) and COLUMN in text.column_names:
        ids = tokenizer(text[COLUMN][:], add_special_tokens=False, verbose=False)["input_ids"]
        found = f" Found {sum(map(len, ids)):,}."
    return UserError(
        f"`text` should fill a row of the model's context, {n_tokens:,} tokens.{found}"
    )
