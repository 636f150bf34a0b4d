"""The one reader of text: words or rows of tokens, from the Hub, a folder or a file.

`datasets` reads the files, a part at a time where it can. What SAELens is given has one
column, `text` or `tokens`, and no row without content.
"""

import atexit
import codecs
import copy
import csv
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from glob import escape
from itertools import islice
from logging import getLogger
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pandas as pd
from datasets import (
    Dataset,
    DatasetDict,
    IterableDatasetDict,
    load_dataset,
    load_dataset_builder,
    load_from_disk,
)
from datasets.exceptions import DataFilesNotFoundError
from datasets.packaged_modules.csv.csv import CsvConfig
from fsspec.implementations.local import LocalFileSystem
from sae_lens.training.activations_store import validate_pretokenized_dataset_tokenizer

from sae_lens_c2r._support.errors import (
    UserError,
    counted,
    is_of_network,
    needing_the_hub,
    one_line,
    shortened,
)
from sae_lens_c2r._support.remote_code import TRUST, TRUSTED, remote_code
from sae_lens_c2r.offline.corpus import OFFLINE_DATASETS, documents_of, token_rows
from sae_lens_c2r.offline.models import MINILM, where_model_is
from sae_lens_c2r.releases.model import TextSource

_OF_TOKENS = ("tokens", "input_ids")
COLUMNS = (*_OF_TOKENS, "text", "problem")  # as SAELens looks for them
_COMPRESSED = {".gz", ".gzip", ".bz2", ".xz", ".zst", ".zip"}
_LINES = ("text", {"keep_linebreaks": True})
_LOADERS: dict[str, tuple[str, dict[str, Any]]] = {
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), ("json", {})),
    **{".csv": ("csv", {}), ".tsv": ("csv", {"sep": "\t"})},
    **{".parquet": ("parquet", {}), ".arrow": ("arrow", {})},
}  # any other ending is one of plain text
_SEPARATORS = ",;\t|"  # of tables; the first one if none has more columns
_HIDDEN = re.compile(r"(^|/)\.")
_PATTERN = re.compile(r"[*?\[\]]")  # in the name of a folder, for `datasets`
_PIECE = 1 << 18  # characters that are tokenized at a time
_FIRST_ROWS = 100  # that say of how many tokens the rows are read
_Row = Mapping[str, Any]


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
        self._column = _column_of(self._columns, column) if first else ""
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
        if self._column in _OF_TOKENS and re.match(r"\s*\[\s*\d", words):
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
        if model == MINILM.hub_id and not self.is_tokens:
            text._tokenize = _tokenize_for_minilm
        rows = islice(text, _FIRST_ROWS if self.is_tokens else 1)
        lengths = [
            min(len(row.get("tokens", ())) or context_size, context_size) for row in rows
        ]
        text._longest = max(lengths)
        text.context_size = max(lengths, key=lambda n: n * sum(each >= n for each in lengths))
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
            validate_pretokenized_dataset_tokenizer(self._hub_id, tokenizer)

    @property
    def left_out(self) -> str | None:
        """A sentence on the rows that gave nothing, as far as the text has been read."""
        if not self._n_left_out:
            return None
        why = f"fewer than {self.context_size:,} tokens" if self.is_tokens else "no text"
        return f"{self._n_left_out:,} of {self._n_rows:,} rows of {self.named} have {why}."

    @property
    def size(self) -> int | None:
        """Bytes of a text on this machine, which tell cheaply that it has changed."""
        if self.path is None:
            return None
        if self.path.is_file():
            return self.path.stat().st_size
        return sum(each.stat().st_size for each in _files_in(self.path))

    def _words(self) -> Iterator[str]:
        """The documents, long ones in pieces: tokenizing costs what is used."""
        documents = _joined(self._values()) if self._are_lines else self._values()
        for document in documents:
            for start in range(0, len(document), _PIECE):
                if (piece := document[start : start + _PIECE]).strip():
                    yield piece

    def _values(self) -> Iterator[Any]:
        """The content of the column, without the rows that have none."""
        for number, row in enumerate(self._read(), start=1):
            is_new = number > self._n_rows  # and not of another pass over the text
            self._n_rows = max(self._n_rows, number)
            value = row.get(self._column)
            if _is_content(value, self._are_lines, self.context_size):
                if self.n_vocabulary and (highest := _highest(value)) >= self.n_vocabulary:
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

        def place() -> str:
            bad_line = _bad_line(self.path) if self.path else None
            return bad_line or f"{self.named}, after row {n_read:,}"

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
        check_part(source)
        return Text([{"text": each} for each in documents_of(name)], source.shown)
    is_file = path is not None and path.is_file()
    if not name.strip() or not (path is None or is_file or path.is_dir()):
        should = "be a file that can be read twice, a folder, or a dataset on the Hub"
        is_missing = path is not None and not path.exists()
        found = f"{name}, and there is no such file" if is_missing else name
        raise UserError(field, should, found if name.strip() else "nothing")
    are_lines = False
    with needing_the_hub(f"The text {name}"), _naming(name, field), remote_code():
        if path is not None and is_file:
            rows, are_lines = _rows_of_file(path, source)
        else:
            rows = _rows_of_dataset(source, streaming)
    about: dict[str, Any] = {"column": source.column, "path": path, "field": field}
    hub_id = name if path is None else None
    return Text(rows, source.shown, are_lines=are_lines, hub_id=hub_id, **about)


def check_part(source: TextSource) -> None:
    """Raise where a part is named of a text of ours, which is one split and has one column."""
    for part, value in source.part.items():
        if (part, value) != ("split", "train"):
            raise UserError(part, "not be given for a text of ours", source.dataset)


def _rows_of_file(path: Path, source: TextSource) -> tuple[Any, bool]:
    """The rows of a file, by its ending, and whether they are the lines of one document."""
    if source.split not in (None, "train") or source.subset is not None:
        part = "split" if source.subset is None else "subset"
        raise UserError(part, "not be given for a file", path)
    path = _without_special_names(path)
    builder, options = _LOADERS.get(_ending_of(path), _LINES)
    if builder not in ("parquet", "arrow"):
        options = {**options, "encoding": _encoding_of(path)}
    if builder == "csv":
        options = _as_words(path, **options)
    options = {**options, "split": "train", "streaming": True}
    # Escaped: notes[1].txt would be a pattern, which other files fit.
    return load_dataset(builder, data_files=escape(str(path)), **options), builder == "text"


def _files_in(folder: Path) -> Iterator[Path]:
    """The files in a folder but for hidden ones, as checkpoints beside a text."""
    for path in folder.rglob("*"):
        if not _HIDDEN.search(path.relative_to(folder).as_posix()) and path.is_file():
            yield path


def _ending_of(path: Path) -> str:
    endings = [each.lower() for each in path.suffixes if each.lower() not in _COMPRESSED]
    return endings[-1] if endings else ""


def _encoding_of(path: Path) -> str:
    """UTF-8, unless a file begins with the mark of UTF-16, as Windows writes it."""
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"PK\3\4" and path.suffix.lower() != ".zip":
        raise ValueError("it is an archive or a document of an office program")
    is_utf16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return "utf-16" if is_utf16 and not start.endswith(b"\0\0") else "utf-8-sig"


def _as_words(path: Path, *, encoding: str, sep: str | None = None) -> dict[str, Any]:
    """Options by which a table's cells are words, never numbers or nothing."""
    options: dict[str, Any] = {"encoding": encoding, "split": "train", "streaming": True}
    lines = load_dataset("text", data_files=escape(str(path)), **options)
    head = [row["text"] for row in lines.take(1)]
    counts = {of: len(next(csv.reader(head, delimiter=of), [])) for of in sep or _SEPARATORS}
    sep = max(counts, key=counts.__getitem__)
    n_columns = counts[sep]
    try:
        # Where the row below the header has more cells, pandas would take the first for an
        # index. Without a header it counts them.
        top = pd.read_csv(path, sep=sep, encoding=encoding, header=None, nrows=2, dtype=str)
        n_columns = top.shape[1]
    except pd.errors.ParserError as error:
        raise ValueError(f"the first row does not fit the header: {error}") from None
    except ValueError:  # an archive, which `datasets` opens
        pass
    converters = dict.fromkeys(range(n_columns), str)
    # Files beside this one may have more columns.
    return {
        "sep": sep,
        "encoding": encoding,
        "converters": converters,
        "keep_default_na": False,
    }


def _without_special_names(path: Path) -> Path:
    """The path, or one of links if `datasets` would read a pattern or a chain in its name."""
    is_folder = path.is_dir()
    files = list(_files_in(path)) if is_folder else [path]
    has_chain = any("::" in str(file) for file in files)
    if not has_chain and not (is_folder and _PATTERN.search(str(path))):
        return path
    links = Path(mkdtemp())
    atexit.register(shutil.rmtree, links, ignore_errors=True)
    link, top = links, path if is_folder else path.parent
    for file in files:
        link = links / str(file.relative_to(top)).replace("::", "_")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file.absolute())
    return links if is_folder else link


@contextmanager
def _naming(place: str | Callable[[], str], field: str) -> Iterator[None]:
    """Name what cannot be read, unless it is not reached."""
    try:
        yield
    except Exception as error:  # datasets, pyarrow, pandas and the Hub raise many kinds
        if isinstance(error, UserError) or is_of_network(error):
            raise
        place = place if isinstance(place, str) else place()
        found = f"in {place}: {shortened(one_line(error), 200)}"
        raise UserError(field, "be text that can be read, in UTF-8", found) from error


def _rows_of_dataset(source: TextSource, streaming: bool) -> Any:
    """One split of a dataset on the Hub, of a folder, or of what `save_to_disk` wrote."""
    name, path = source.dataset, source.path
    options: dict[str, Any] = {"name": source.subset, TRUST: TRUSTED.get()}
    found: Any
    if path and any((path / each).is_file() for each in ("state.json", "dataset_dict.json")):
        found = load_from_disk(str(path))
        is_split = isinstance(found, DatasetDict)
        if source.subset or (source.split not in (None, "train") and not is_split):
            part = "subset" if source.subset else "split"
            raise UserError(part, f"not be given for {path}, which has none")
    elif streaming or path:
        place: Any = _without_special_names(path.resolve()) if path else name
        try:
            builder = load_dataset_builder(str(place), **options)
        except DataFilesNotFoundError:  # none of the kinds that `datasets` knows by their names
            card = place / "README.md" if path else None  # of data that are not here
            is_dataset = card and card.is_file() and card.read_bytes().startswith(b"---")
            documents = sorted(escape(str(each)) for each in _files_in(place)) if path else []
            if is_dataset or not documents:
                raise
            _tell_once(f"{path}: each of {counted(len(documents), 'file')} is a document.")
            about: dict[str, Any] = {"sample_by": "document", **options}
            builder = load_dataset_builder("text", data_files=documents, **about)
        if path:
            _look_into(path, builder.config)
        found = builder.as_streaming_dataset()
    else:  # of the Hub, no more than is asked for
        found = load_dataset(name, split=source.split or "train", **options)
    if not isinstance(found, DatasetDict | IterableDatasetDict):
        return found
    split = source.split or (str(next(iter(found))) if len(found) == 1 else "train")
    if split not in found:
        should = f"be one of {', '.join(map(str, found))}, which {name} has"
        raise UserError("split", should, source.split or "none")
    return found[split]


def _look_into(folder: Path, config: Any) -> None:
    """Have a folder's tables read as a single one is, and tell of files of other kinds."""
    read = [Path(each) for files in (config.data_files or {}).values() for each in files]
    if isinstance(config, CsvConfig):
        options: dict[str, Any] = {"keep_default_na": False}
        said, usual = config.pd_read_csv_kwargs, CsvConfig().pd_read_csv_kwargs
        # Unless a dataset's card has options of its own.
        if {**said, "sep": None} == {**usual, "sep": None} and len(config.sep) == 1:
            sep = None if config.sep == _SEPARATORS[0] else config.sep
            options = _as_words(read[0], encoding="utf-8-sig", sep=sep)
        for name, value in options.items():
            setattr(config, name, value)
    kinds = {*_LOADERS, ".txt"} - {_ending_of(file) for file in read}
    others = sorted(each.name for each in _files_in(folder) if _ending_of(each) in kinds)
    if read and others:
        _tell_once(
            f"{folder}: read are files like {read[0].name}, and not {len(others):,} of other "
            f"kinds, like {others[0]}."
        )


@cache
def _tell_once(line: str) -> None:
    getLogger(__name__).warning(line)


def _column_of(there: list[str], wanted: str | None) -> str:
    """The column that is named, or that SAELens would take, or the only one."""
    if wanted is None:
        wanted = next((each for each in COLUMNS if each in there), None)
        if wanted is None and len(there) == 1:
            wanted = there[0]
            _tell_once(f"The text is read from its only column, {shortened(wanted, 80)}.")
    if wanted not in there:
        should = f"be one of {', '.join(there)}, which the text has"
        raise UserError("column", should, wanted or f"none of {', '.join(COLUMNS)}")
    return wanted


def _is_content(value: Any, are_lines: bool, least: int) -> bool:
    """Whether a value is words, or so many tokens; a blank line belongs to its document."""
    if isinstance(value, str):
        return are_lines or bool(value.strip())
    return _are_tokens(value) and len(value) >= max(least, 1)


def _are_tokens(value: Any) -> bool:
    is_row = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return is_row and all(type(each) is int and each >= 0 for each in value)


def _highest(content: Any) -> int:
    """The highest token, if they are tokens."""
    return -1 if isinstance(content, str) else max(content)


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


def _bad_line(path: Path) -> str | None:
    """The first line of JSON that is none, or has other kinds of values than those before."""
    for file in (
        each for each in (path, *sorted(path.rglob("*"))) if ".jsonl" in each.suffixes
    ):
        kinds: dict[str, str] = {}
        try:
            with LocalFileSystem().open(file, compression="infer") as lines:
                for number, line in enumerate(lines, start=1):
                    with suppress(ValueError, AttributeError):
                        row = json.loads(line.decode("utf-8-sig").strip() or "{}")
                        found = {k: type(v).__name__ for k, v in row.items() if v is not None}
                        if {**found, **kinds} == {**kinds, **found}:
                            kinds |= found
                            continue
                    shown = shortened(line.decode(errors="replace").strip(), 80)
                    return f"line {number:,} of {file}, {shown}"
        except Exception:  # what is compressed is cut, or was never compressed
            return str(file)
    return None
