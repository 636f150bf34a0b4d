"""How files of text are opened: by their ending and encoding, on the Hub or on this machine.

`datasets` reads them, a part at a time where it can.
"""

import atexit
import codecs
import csv
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from glob import escape
from logging import getLogger
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pandas as pd
from datasets import (
    DatasetDict,
    IterableDatasetDict,
    load_dataset,
    load_dataset_builder,
    load_from_disk,
)
from datasets.exceptions import DataFilesNotFoundError
from datasets.packaged_modules.csv.csv import CsvConfig
from fsspec.implementations.local import LocalFileSystem

from sae_lens_c2r._support.errors import UserError, counted, shortened
from sae_lens_c2r._support.remote_code import TRUST, TRUSTED
from sae_lens_c2r.releases.model import TextSource

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


def rows_of_file(path: Path, source: TextSource) -> tuple[Any, bool]:
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


def rows_of_dataset(source: TextSource, streaming: bool) -> Any:
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
            documents = sorted(escape(str(each)) for each in files_in(place)) if path else []
            if is_dataset or not documents:
                raise
            tell_once(f"{path}: each of {counted(len(documents), 'file')} is a document.")
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
    others = sorted(each.name for each in files_in(folder) if _ending_of(each) in kinds)
    if read and others:
        tell_once(
            f"{folder}: read are files like {read[0].name}, and not {len(others):,} of other "
            f"kinds, like {others[0]}."
        )


def files_in(folder: Path) -> Iterator[Path]:
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
    files = list(files_in(path)) if is_folder else [path]
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


def bad_line(path: Path) -> str | None:
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


@cache
def tell_once(line: str) -> None:
    """Tell what the reader decided, but not again each time that a text is opened."""
    getLogger(__name__).warning(line)
