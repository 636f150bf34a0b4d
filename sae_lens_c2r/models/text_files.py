"""How files of text are opened: by their ending and encoding, on the Hub or on this machine.

`datasets` reads them, a part at a time where it can.
"""

import atexit
import codecs
import inspect
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from zipfile import BadZipFile, ZipFile

from datasets import (
    DatasetBuilder,
    DatasetDict,
    IterableDatasetDict,
    load_dataset,
    load_dataset_builder,
    load_from_disk,
)
from datasets.exceptions import DataFilesNotFoundError
from datasets.packaged_modules.csv.csv import CsvConfig
from datasets.packaged_modules.folder_based_builder.folder_based_builder import (
    FolderBasedBuilder,
)
from datasets.packaged_modules.parquet.parquet import ParquetConfig
from fsspec.implementations.local import LocalFileSystem

from sae_lens_c2r._support.errors import UserError, counted, one_line, shortened, tell_once
from sae_lens_c2r._support.remote_code import TRUST, TRUSTED
from sae_lens_c2r.models.text_source import COMPRESSED, LOADERS, TextSource
from sae_lens_c2r.models.text_tables import SEPARATORS, as_words, leave_out_other_tables

_LINES = ("text", {"keep_linebreaks": True})
_PACKAGED = "datasets.packaged_modules."
# By the module of a builder; the first is that of a script in a dataset's repository.
_OF_ROWS = {"datasets_modules", "text", *(builder for builder, _ in LOADERS.values())}
# From version 4, `datasets` runs no code of a repository.
_TAKES_TRUST = TRUST in inspect.signature(load_dataset_builder).parameters
_HIDDEN = re.compile(r"(^|/)\.")
_PATTERN = re.compile(r"[*?\[\]]")  # in the name of a folder, for `datasets`


def check_part(source: TextSource, whose: str, *, of: Iterable[str]) -> None:
    """Raise where a part is named of a text that has no such parts, but one split, `train`."""
    for part, value in source.part.items():
        if part in of and (part, value) != ("split", "train"):
            raise UserError(part, f"not be given for {whose}", value)


def rows_of_file(path: Path, source: TextSource) -> tuple[Any, bool]:
    """The rows of a file, by its ending, and whether they are the lines of one document."""
    check_part(source, f"{path}, a file", of=("split", "subset"))
    path = _without_special_names(path)
    builder, options = LOADERS.get(_ending_of(path), _LINES)
    if builder not in ("parquet", "arrow"):
        options = {**options, "encoding": _encoding_of(path)}
    if builder == "csv":
        options = as_words(path, **options)
    options = {**options, "split": "train", "streaming": True}
    # Escaped: notes[1].txt would be a pattern, which other files fit.
    return load_dataset(builder, data_files=escape(str(path)), **options), builder == "text"


def rows_of_dataset(source: TextSource, streaming: bool) -> Any:
    """One split of a dataset on the Hub, of a folder, or of what `save_to_disk` wrote."""
    name, path = source.dataset, source.path
    options: dict[str, Any] = {"name": source.subset}
    if _TAKES_TRUST:
        options[TRUST] = TRUSTED.get()
    found: Any
    if path and any((path / each).is_file() for each in ("state.json", "dataset_dict.json")):
        found = load_from_disk(str(path))
        without = ["subset"] if isinstance(found, DatasetDict) else ["subset", "split"]
        check_part(source, f"{path}, which has none", of=without)
    elif streaming or path:
        place: Any = _without_special_names(path.resolve()) if path else name
        with _naming_the_subset():
            builder = _builder_of(place, options)
        if path:
            _look_into(path, builder.config, source)
        found = builder.as_streaming_dataset()
    else:  # of the Hub, no more than is asked for
        with _naming_the_subset():
            builder = load_dataset_builder(name, **options)
        splits = builder.info.splits or builder.config.data_files or {"train": None}
        # One that is asked for may be an expression, like train[:10%].
        split = source.split or _split_of(splits, source)
        return load_dataset(name, split=split, **options)
    if not isinstance(found, DatasetDict | IterableDatasetDict):
        return found
    return found[_split_of(found, source)]


def _split_of(splits: Mapping[Any, Any], source: TextSource) -> str:
    """The split that is asked for, or the only one, or `train`."""
    split = source.split or (str(next(iter(splits))) if len(splits) == 1 else "train")
    if split not in splits:
        should = f"be one of {', '.join(map(str, splits))}, which {source.dataset} has"
        raise UserError("split", should, source.split or "none")
    return split


@contextmanager
def _naming_the_subset() -> Iterator[None]:
    """Name the parameter that `datasets` calls a config's name."""
    try:
        yield
    except ValueError as error:
        if not re.match("Config name is missing|BuilderConfig '.*' not found", str(error)):
            raise
        # `datasets` lists those that there are.
        raise UserError("subset", "be one that the text has", more=one_line(error)) from None


def _builder_of(place: Path | str, options: dict[str, Any]) -> DatasetBuilder:
    """Find how a dataset is read, or a folder: its tables, its lines, or files as documents."""
    if isinstance(place, str):
        return load_dataset_builder(place, **options)
    try:
        builder = load_dataset_builder(str(place), **options)
        if _is_of_rows(builder, place):
            return builder
    except DataFilesNotFoundError:  # none of the kinds that `datasets` knows by their names
        card = place / "README.md"  # of data that are not here
        if card.is_file() and card.read_bytes().startswith(b"---"):
            raise
    files = sorted(files_in(place))
    kinds = Counter(_ending_of(each) for each in files)
    tables = {ending: n for ending, n in kinds.items() if ending in {*LOADERS, ".txt"}}
    if tables:
        ending = max(tables, key=tables.__getitem__)
        name, about = LOADERS.get(ending, ("text", {}))
        read = [each for each in files if _ending_of(each) == ending]
    else:
        name, about = "text", {"sample_by": "document"}
        read = [each for each in files if not _is_binary(each)]
        left_out = f" Not text: {len(files) - len(read):,}." if len(read) < len(files) else ""
        tell_once(f"{place}: each of {counted(len(read), 'file')} is a document.{left_out}")
    if not read:
        raise DataFilesNotFoundError(f"No file in {place} is text")
    chosen = [escape(str(each)) for each in read]
    return load_dataset_builder(name, data_files=chosen, **{**about, **options})


def _is_of_rows(builder: DatasetBuilder, place: Path) -> bool:
    """Whether a folder's files have rows that `datasets` reads as words."""
    if isinstance(builder, FolderBasedBuilder):  # with captions, or beside a text
        return any(place.rglob("metadata.*"))
    kind = type(builder).__module__.removeprefix(_PACKAGED).partition(".")[0]
    # From version 5, there are kinds for .md and .xml that read no notes.
    return kind in _OF_ROWS or all(map(_is_binary, _files_of(builder.config)))


def _files_of(config: Any) -> list[Path]:
    """The files that a builder reads, of all splits."""
    return [Path(each) for files in (config.data_files or {}).values() for each in files]


def _is_binary(path: Path) -> bool:
    """Whether a file begins as no text does: in UTF-16 alone, a letter may have a NUL."""
    with path.open("rb") as file:
        start = file.read(1 << 12)
    is_utf16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return b"\0" in start and not is_utf16 and path.suffix.lower() not in COMPRESSED


def _look_into(folder: Path, config: Any, source: TextSource) -> None:
    """Have a folder's tables read as a single one is, and tell of files of other kinds."""
    read, is_usual = _files_of(config), False
    if isinstance(config, CsvConfig):
        options: dict[str, Any] = {"keep_default_na": False}
        said, usual = config.pd_read_csv_kwargs, CsvConfig().pd_read_csv_kwargs
        # Unless a dataset's card has options of its own.
        is_usual = {**said, "sep": None} == {**usual, "sep": None} and len(config.sep) == 1
        if is_usual:
            sep = None if config.sep == SEPARATORS[0] else config.sep
            options = as_words(read[0], encoding=_encoding_of(read[0]), sep=sep)
        for name, value in options.items():
            setattr(config, name, value)
    if getattr(config, "encoding", None) == "utf-8":
        config.encoding = "utf-8-sig"  # the mark is no text
    if is_usual or (isinstance(config, ParquetConfig) and config.columns is None):
        name = _split_of(config.data_files, source)
        for other in config.data_files.keys() - {name}:  # or its columns would count
            del config.data_files[other]
        leave_out_other_tables(folder, config, config.data_files[name], source.column)
    of_tables, kinds = {*LOADERS, ".txt"}, {_ending_of(file) for file in read}
    there = sorted((each.name, _ending_of(each)) for each in files_in(folder))
    others = [name for name, ending in there if ending in of_tables - kinds]
    # Notes beside a table are none of it, unless there are more of them than of tables.
    notes = [name for name, ending in there if ending not in {"", *of_tables, *kinds}]
    others += notes if len(notes) > len(read) else []
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


def size_of(path: Path | None) -> int | None:
    """Bytes of a file, or of those in a folder; `None` where there is neither."""
    if path is None or not path.exists():
        return None
    files = [path] if path.is_file() else files_in(path)
    return sum(each.stat().st_size for each in files)


def _ending_of(path: Path) -> str:
    endings = [each.lower() for each in path.suffixes if each.lower() not in COMPRESSED]
    if path.suffix.lower() == ".zip" and not {*endings} & {*LOADERS}:  # what is in it says
        with suppress(BadZipFile, OSError), ZipFile(path) as file:
            endings = [Path(name).suffix.lower() for name in file.namelist() if "." in name]
    return endings[-1] if endings else ""


def _encoding_of(path: Path) -> str:
    """UTF-8, unless a file begins with the mark of UTF-16, as Windows writes it."""
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"PK\3\4" and path.suffix.lower() != ".zip":
        raise ValueError("it is an archive or a document of an office program")
    is_utf16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return "utf-16" if is_utf16 and not start.endswith(b"\0\0") else "utf-8-sig"


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


def place_of(error: Exception, path: Path) -> str | None:
    """Where a text cannot be read: a line of JSON, or a file that is not in UTF-8."""
    files = [path] if path.is_file() else sorted(files_in(path))
    if isinstance(error.__cause__ or error, UnicodeDecodeError):
        plain = (each for each in files if not {*each.suffixes} & COMPRESSED)
        return next((str(each) for each in plain if not _is_in_utf_8(each)), None)
    lines = (_bad_line(each) for each in files if ".jsonl" in each.suffixes)
    return next(filter(None, lines), None)


def _bad_line(file: Path) -> str | None:
    """The first line of JSON that is none, or has other kinds of values than those before."""
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


def _is_in_utf_8(path: Path) -> bool:
    with suppress(UnicodeDecodeError), path.open(encoding="utf-8") as lines:
        return _is_binary(path) or all(True for _ in lines)
    return False
