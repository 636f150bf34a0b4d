"""The one reader of text: words or rows of tokens, from the Hub, a folder or a file.

What SAELens is given has one column, `text` or `tokens`, and no row without content.
"""

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset
from huggingface_hub.errors import LocalEntryNotFoundError
from sae_lens.training.activations_store import validate_pretokenized_dataset_tokenizer

from sae_lens_c2r._support.errors import (
    UserError,
    is_of_network,
    needing_the_hub,
    one_line,
    shortened,
)
from sae_lens_c2r._support.remote_code import remote_code
from sae_lens_c2r.models.corpus import OFFLINE_DATASETS, documents_of, token_rows
from sae_lens_c2r.models.offline import MINILM, hub_id_of_folder, where_model_is
from sae_lens_c2r.models.text_files import (
    check_part,
    place_of,
    rows_of_dataset,
    rows_of_file,
)
from sae_lens_c2r.models.text_source import TextSource
from sae_lens_c2r.models.text_tables import OF_TOKENS, column_of

_PIECE = 1 << 18  # characters that are tokenized at a time
FIRST_ROWS = 100  # that say of how many tokens the rows are read
_Row = Mapping[str, Any]


def length_that_keeps_most(lengths: Sequence[int]) -> int:
    """The length of rows that keeps most tokens, where shorter ones are left out."""
    return max(lengths, key=lambda n: n * sum(each >= n for each in lengths))


class Text:
    """A text that can be read again and again, in the form in which SAELens reads a dataset."""

    def __init__(
        self,
        rows: Iterable[_Row],
        named: str,
        *,
        column: str | None = None,  # by default SAELens's, or the only one
        are_lines: bool = False,  # of one document
        path: Path | None = None,  # of the file or folder; or else
        hub_id: str | None = None,  # of the dataset
        field: str = "text",  # that errors name
    ) -> None:
        """Look at the first row; a UserError if there is no text in it, or none in UTF-8."""
        self.named, self.path, self._hub_id = named, path, hub_id
        self._field = field
        self._rows = rows.with_format(None) if isinstance(rows, Dataset) else rows
        self._are_lines = are_lines
        self._tokenize: Callable[[Iterable[str]], Iterable[Sequence[int]]] | None = None
        self.context_size = self._longest = 1  # tokens: rows of fewer are left out
        self.n_vocabulary: int | None = None  # of the model that reads tokens, if it is known
        self._n_rows = self._n_left_out = 0
        first = next(self._read(), None)
        self._columns = list(first or ())
        self._column = column_of(self._columns, column) if first else ""
        content = next(self._values(), "")
        self.is_tokens = not isinstance(content, str)
        if not self.is_tokens:
            self._check_words(content)
        if next(iter(self), None) is None:
            raise UserError(field, "not be empty", f"no text in {named}")

    def _check_words(self, words: str) -> None:
        """Raise if the first words are of another encoding, or the text of a row of tokens."""
        start = words[:64]
        if 3 * start.count("\0") > len(start):  # UTF-16 has one in every letter
            raise UserError(self._field, "be text in UTF-8", f"NUL characters {self._place(1)}")
        if self._column in OF_TOKENS and re.match(r"\s*\[\s*\d", words):
            should = "have rows of tokens as lists of numbers, as a .jsonl or .parquet has them"
            raise UserError(self._field, should, shortened(f"words {self._place(1)}", 200))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self.is_tokens:
            return ({"tokens": row} for row in self._values())
        if self._tokenize is not None:
            return ({"tokens": row} for row in self._tokenize(self._words()))
        return ({"text": words} for words in self._words())

    def for_model(self, model: str | None, context_size: int) -> "Text":
        """The text as a model reads it, in rows of the length that keeps most tokens."""
        text = copy.copy(self)  # MiniLM reads rows of its own, between special tokens
        if MINILM.hub_id in (model, hub_id_of_folder(model or "")) and not self.is_tokens:
            text._tokenize = _tokenize_for_minilm
        rows = islice(text, FIRST_ROWS if self.is_tokens else 1)
        lengths = [
            min(len(row.get("tokens", ())) or context_size, context_size) for row in rows
        ]
        text._longest = max(lengths)
        text.context_size = length_that_keeps_most(lengths)
        text._n_rows = text._n_left_out = 0
        return text

    def check_context(self, context_size: int) -> None:
        """Raise unless one of the first rows of tokens fills the model's context."""
        if self._longest < context_size:
            should = f"fill rows of {context_size:,} tokens, the `context_size`"
            found = f"{self._longest:,} in the longest of the first rows of {self.named}"
            raise UserError(self._field, should, found)
        self.context_size = context_size  # shorter rows are left out

    def check_tokenizer(self, tokenizer: Any) -> None:
        """Raise where tokens are of another tokenizer: by the Hub, or once one is too high."""
        if self.is_tokens and self.n_vocabulary is None and tokenizer is not None:
            self.n_vocabulary = 1 + max(tokenizer.get_vocab().values())
        if self.is_tokens and self._hub_id is not None:
            try:
                validate_pretokenized_dataset_tokenizer(self._hub_id, tokenizer)
            except LocalEntryNotFoundError:  # without a network, where nobody knows
                pass
            except ValueError as error:
                if "does not match" not in str(error):
                    raise
                should = "have tokens of the model's tokenizer"
                raise UserError(self._field, should, shortened(str(error), 200)) from None

    @property
    def left_out(self) -> str | None:
        """A sentence on the rows that gave nothing, as far as the text has been read."""
        if not self._n_left_out:
            return None
        why = f"fewer than {self.context_size:,} tokens" if self.is_tokens else "no text"
        return f"{self._n_left_out:,} of {self._n_rows:,} rows of {self.named} have {why}."

    def _words(self) -> Iterator[str]:
        """The documents, long ones in pieces: tokenizing costs what is used."""
        documents = _joined(self._values()) if self._are_lines else self._values()
        for document in documents:
            # `datasets` leaves the mark of UTF-8 in a compressed file, from version 5.
            document = document.removeprefix("\ufeff")
            for start in range(0, len(document), _PIECE):
                if (piece := document[start : start + _PIECE]).strip():
                    yield piece

    def _values(self) -> Iterator[Any]:
        """The content of the column, without the rows that have none."""
        for number, row in enumerate(self._read(), start=1):
            is_new = number > self._n_rows  # and not of another pass over the text
            self._n_rows = max(self._n_rows, number)
            value: Any = row.get(self._column)
            if _is_content(value, self._are_lines, self.context_size):
                highest = -1 if isinstance(value, str) else max(value)
                if self.n_vocabulary and highest >= self.n_vocabulary:
                    should = f"have tokens below {self.n_vocabulary:,}, the model's vocabulary"
                    raise UserError(self._field, should, f"{highest:,} {self._place(number)}")
                yield value
            elif value is None or isinstance(value, str) or _are_tokens(value):
                self._n_left_out += is_new
            else:
                columns = f", which has the columns {', '.join(self._columns)}"
                found = f"{shortened(repr(value), 80)} {self._place(number)}{columns}"
                raise UserError(self._field, "be words, or rows of tokens", found)

    def _place(self, number: int) -> str:
        return f"in column {self._column}, row {number:,} of {self.named}"

    def _read(self) -> Iterator[_Row]:
        """The rows, with the place where they cannot be read."""
        n_read = 0

        def place(error: Exception) -> str:
            found = place_of(error, self.path) if self.path else None
            return found or f"{self.named}, after row {n_read:,}"

        with needing_the_hub(f"The text {self.named}"), _naming(place, self._field):
            for row in self._rows:
                n_read += 1
                yield row


def read_text(
    source: TextSource,
    *,
    streaming: bool = True,
    field: str = "text",
) -> Text:
    """Open a text; a UserError if it is not there, or if its first row cannot be read."""
    name, path = source.dataset, source.path
    if name in OFFLINE_DATASETS:
        check_part(source, f"the built-in text {name}", of=("subset", "column"))
        documents = documents_of(name, source.split)
        return Text([{"text": each} for each in documents], source.shown)
    is_file = path is not None and path.is_file()
    if not name.strip() or not (path is None or is_file or path.is_dir()):
        should = "be a file that can be read twice, a folder, or a dataset on the Hub"
        is_missing = path is not None and not path.exists()
        found = f"{name}, and there is no such file" if is_missing else name
        raise UserError(field, should, found if name.strip() else "nothing")
    are_lines = False
    with needing_the_hub(f"The text {name}"), _naming(name, field), remote_code():
        if path is not None and is_file:
            rows, are_lines = rows_of_file(path, source)
        else:
            rows = rows_of_dataset(source, streaming)
    about: dict[str, Any] = {"column": source.column, "path": path, "field": field}
    hub_id = name if path is None else None
    return Text(rows, source.shown, are_lines=are_lines, hub_id=hub_id, **about)


@contextmanager
def _naming(place: str | Callable[[Exception], str], field: str) -> Iterator[None]:
    """Name what cannot be read, unless it is not reached."""
    try:
        yield
    except Exception as error:  # datasets, pyarrow, pandas and the Hub raise many kinds
        if isinstance(error, UserError) or is_of_network(error):
            raise
        cache = str(datasets.config.HF_DATASETS_CACHE)
        if isinstance(error, OSError) and str(error.filename).startswith(cache):
            should, advice = "be a folder that can be written to", "Or set HF_DATASETS_CACHE."
            raise UserError(Path(cache), should, error.strerror, advice) from error
        place = place if isinstance(place, str) else place(error)
        found = f"in {place}: {shortened(one_line(error), 200)}"
        raise UserError(field, "be text that can be read, in UTF-8", found) from error


def _is_content(value: Any, are_lines: bool, least: int) -> bool:
    """Whether a value is words, or so many tokens; a blank line belongs to its document."""
    if isinstance(value, str):
        return are_lines or bool(value.strip())
    return _are_tokens(value) and len(value) >= max(least, 1)


def _are_tokens(value: Any) -> bool:
    is_row = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return is_row and all(type(each) is int and each >= 0 for each in value)


def _joined(lines: Iterator[str]) -> Iterator[str]:
    """The lines of a document together, but no more than are tokenized at a time."""
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= _PIECE:
            yield "".join(held)
            held, size = [], 0
    yield "".join(held)


def _tokenize_for_minilm(words: Iterable[str]) -> Iterable[Sequence[int]]:
    from transformers import AutoTokenizer

    return token_rows(words, AutoTokenizer.from_pretrained(where_model_is(MINILM.hub_id)))
