"""Tables with a text: their separator, their header, and the column that is read."""

import csv
from glob import escape
from pathlib import Path
from typing import Any

import pandas as pd
from datasets import load_dataset
from datasets.packaged_modules.csv.csv import CsvConfig
from pyarrow.parquet import ParquetFile

from sae_lens_c2r._support.errors import UserError, counted, one_line, shortened, tell_once

SEPARATORS = ",;\t|"  # the first one if none has more columns
OF_TOKENS = ("tokens", "input_ids")
COLUMNS = (*OF_TOKENS, "text", "problem")  # as SAELens looks for them


def as_words(path: Path, *, encoding: str, sep: str | None = None) -> dict[str, Any]:
    """Options by which a table's cells are words, never numbers or nothing."""
    options: dict[str, Any] = {"encoding": encoding, "split": "train", "streaming": True}
    lines = load_dataset("text", data_files=escape(str(path)), **options)
    head = [row["text"] for row in lines.take(1)]
    counts = {of: len(next(csv.reader(head, delimiter=of), [])) for of in sep or SEPARATORS}
    sep = max(counts, key=counts.__getitem__)
    try:
        n_columns = _top(path, sep=sep, encoding=encoding).shape[1]
    except UserError:
        raise
    except ValueError:  # of an archive, which `datasets` opens
        n_columns = counts[sep]
    converters = dict.fromkeys(range(n_columns), str)
    about: dict[str, Any] = {"sep": sep, "encoding": encoding, "converters": converters}
    return {**about, "keep_default_na": False}


def _top(path: Path, *, sep: str, encoding: str) -> Any:
    """The header of a table as a row, and the row below it."""
    options: dict[str, Any] = {"sep": sep, "encoding": encoding, "keep_default_na": False}
    try:
        # Where the row below the header has more cells, pandas would take the first for an
        # index. Without a header it counts them.
        return pd.read_csv(path, header=None, nrows=2, dtype=str, **options)
    except pd.errors.ParserError as error:
        should = "have no more cells in its first row than in its header"
        raise UserError(path, should, one_line(error)) from None


def leave_out_other_tables(
    folder: Path, config: Any, files: list[str], wanted: str | None
) -> None:
    """Read of a folder's tables those that have the column of text, and tell of the others."""
    headers = {file: _header_of(file, config) for file in files}
    known = list(filter(None, headers.values()))
    if len(files) == 1 or not known:
        return
    likely = {wanted} if wanted else {*COLUMNS}
    column = column_of(next((each for each in known if likely & {*each}), known[0]), wanted)
    others = [file for file, has in headers.items() if has is not None and column not in has]
    files[:] = [file for file in files if file not in others]
    if isinstance(config, CsvConfig):  # as words, whichever of the tables has most columns
        config.converters = dict.fromkeys(range(max(map(len, known))), str)
    else:  # the other columns may differ
        config.columns = [column]
    if others:
        tell_once(
            f"{folder}: left out, without rows or a column {column}: "
            f"{counted(len(others), 'table')}, such as {Path(others[0]).name}."
        )


def _header_of(file: str, config: Any) -> list[str] | None:
    """The columns of a table, none if it is empty; `None` if that is not known."""
    try:
        if isinstance(config, CsvConfig):
            return list(_top(Path(file), sep=config.sep, encoding=config.encoding).iloc[0])
        about = ParquetFile(file)
        return about.schema_arrow.names if about.metadata.num_rows else []
    except pd.errors.EmptyDataError:
        return []
    except UserError:
        raise
    except Exception:  # reading the file says why
        return None


def column_of(there: list[str], wanted: str | None) -> str:
    """The column that is named, or that SAELens would take, or the only one."""
    if wanted is None:
        wanted = next((each for each in COLUMNS if each in there), None)
        if wanted is None and len(there) == 1:
            wanted = there[0]
            tell_once(f"The text is read from its only column, {shortened(wanted, 80)}.")
    if wanted not in there:
        should = f"be one of {', '.join(there)}, which the text has"
        raise UserError("column", should, wanted or f"none of {', '.join(COLUMNS)}")
    return wanted
