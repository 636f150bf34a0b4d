"""The one reader of text. Whatever is read becomes an `IterableDataset` of one column.

The column is `text`, with words, or `tokens`, with a row of tokens in each row. No row is
empty. The rows can be read again and again, always in the same order.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from glob import escape
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
from datasets import (
    Dataset,
    DatasetDict,
    Features,
    IterableDataset,
    Value,
    load_dataset,
    load_dataset_builder,
    load_from_disk,
)
from huggingface_hub.errors import LocalEntryNotFoundError
from sae_lens.training.activations_store import validate_pretokenized_dataset_tokenizer

from sae_lens_c2r._support.errors import UserError, shortened
from sae_lens_c2r._support.remote_code import TRUST, TRUSTED, remote_code
from sae_lens_c2r.models.names import ModelName
from sae_lens_c2r.models.offline import MINILM, documents_of, token_rows
from sae_lens_c2r.models.text_source import OFFLINE_DATASET, TextSource

FIRST_ROWS = 100  # that say of how many tokens the rows are
_PIECE = 1 << 18  # characters of a document that are tokenized at a time
_ROWS_AT_ONCE = 16  # that are cut, or looked at
_OF_TOKENS = ("tokens", "input_ids")
_COLUMNS = (*_OF_TOKENS, "text", "problem")  # as SAELens looks for them
_WORDS = Features({"text": Value("string")})
_TOKENS = Features({"tokens": datasets.Sequence(Value("int64"))})
_BUILDERS: dict[str, tuple[str, dict[str, Any]]] = {  # of `datasets`, by a file's ending
    ".txt": ("text", {"sample_by": "document"}),
    ".md": ("text", {"sample_by": "document"}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".csv": ("csv", {"sep": ","}),
    ".tsv": ("csv", {"sep": "\t"}),
    ".parquet": ("parquet", {}),
}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
# From version 4, `datasets` runs no code of a repository, and has no such option.
_TAKES_TRUST = TRUST in inspect.signature(load_dataset).parameters


def read_text(source: TextSource, *, streaming: bool = True) -> IterableDataset:
    """Open a text: `streaming` says how one on the Hub is read. A part is never streamed."""
    streaming = (streaming or source.path is not None) and "[" not in (source.split or "")
    if source.dataset == OFFLINE_DATASET:
        _refuse(source, "subset")
        documents = Dataset.from_dict({"text": list(documents_of(source.split))})
        return one_column(documents, source.column, source.shown)
    # A script of a dataset is imported here, and the first rows are read.
    with remote_code():
        return one_column(_open(source, streaming), source.column, source.shown)


def _open(source: TextSource, streaming: bool) -> Dataset | IterableDataset:
    path = source.path
    if path is None:
        return _load(source, streaming)
    if not path.is_dir():
        return _load_file(path, source, streaming)
    if any((path / name).is_file() for name in ("state.json", "dataset_dict.json")):
        _refuse(source, "subset")
        saved = load_from_disk(str(path))
        if isinstance(saved, DatasetDict):
            return saved[_split_of(source, saved)]
        _refuse(source, "split")
        return saved
    return _load(source, streaming)


def _load(source: TextSource, streaming: bool) -> Dataset | IterableDataset:
    options: dict[str, Any] = {TRUST: TRUSTED.get()} if _TAKES_TRUST else {}
    # As a whole path: a folder called text or json would be a builder of `datasets`.
    place = str(source.path.absolute()) if source.path else source.dataset
    if source.path and escape(place) != place:  # or other folders that fit it would be read
        raise UserError(source.path, "have no *, ? or [, which `datasets` takes for a pattern")
    builder = load_dataset_builder(place, source.subset, **options)
    split = _split_of(source, builder.info.splits or builder.config.data_files or {})
    return load_dataset(place, source.subset, split=split, streaming=streaming, **options)


def _split_of(source: TextSource, splits: Mapping[Any, Any]) -> str:
    """The split that is asked for, or the only one, or `train`."""
    return source.split or (str(next(iter(splits))) if len(splits) == 1 else "train")


def _load_file(path: Path, source: TextSource, streaming: bool) -> Dataset | IterableDataset:
    _refuse(source, "subset")
    endings = [each.lower() for each in path.suffixes if each.lower() not in _COMPRESSED]
    if not endings or endings[-1] not in _BUILDERS:
        should = f"be a folder, a dataset on the Hub, or a file in {', '.join(_BUILDERS)}"
        raise UserError(f"The text should {should}. Found {path}.")
    builder, options = _BUILDERS[endings[-1]]
    if builder == "csv":
        options = {**options, **_cells_as_words(path, options["sep"])}
    # Escaped: notes[1].txt would be a pattern, which notes1.txt fits.
    options = {**options, "data_files": escape(str(path)), "streaming": streaming}
    return load_dataset(builder, split=source.split or "train", **options)


def _cells_as_words(path: Path, sep: str) -> dict[str, Any]:
    """Options by which 007 and NA in a table are words, not a number and nothing."""
    # Read without a header, a second row that has more cells is an error. With one, pandas
    # would take the first column for an index, and each column for the next.
    top = pd.read_csv(path, sep=sep, header=None, nrows=2, dtype=str, keep_default_na=False)
    columns = dict.fromkeys(top.iloc[0], Value("string"))
    return {"features": Features(columns), "keep_default_na": False}


def _refuse(source: TextSource, *names: str) -> None:
    """Raise where a part is named of a text that has no such parts."""
    for name in names:
        if name in source.part:
            raise UserError(name, f"not be given for {source.dataset}", source.part[name])


def one_column(
    dataset: Dataset | IterableDataset, column: str | None = None, named: str = "the dataset"
) -> IterableDataset:
    """The words of a dataset in pieces, or its rows of tokens; a UserError if it has none."""
    rows: Any = dataset.with_format(None)
    if isinstance(rows, Dataset):
        rows = rows.to_iterable_dataset()
    columns = list(next(iter(rows), ()))
    empty = UserError(f"The text should have words, or rows of tokens. Found none in {named}.")
    if not columns:
        raise empty
    column = _column_of(columns, column)
    values = rows.select_columns([column])
    first = next((row[column] for row in values if row[column]), None)
    if first is None:
        raise empty
    how: dict[str, Any] = {"remove_columns": [column], "column": column}
    if isinstance(first, str):
        if column in _OF_TOKENS:
            raise UserError(f"The column {column} should have rows of tokens. Found words.")
        found = _in_batches(values, _in_pieces, _WORDS, **how)
    else:
        _check_mask(rows, named)
        found = _in_batches(values, _as_tokens, _TOKENS, **how)
    if next(iter(found), None) is None:
        raise empty
    return found


def _in_batches(
    rows: IterableDataset,
    function: Callable[..., Any],
    features: Features,
    remove_columns: Sequence[str] = (),
    **options: Any,
) -> IterableDataset:
    """The rows that a function makes of others, which may be more or fewer."""
    # `.filter` would do where there are fewer, but in datasets 3.6 it fails after `.map`.
    return rows.map(
        function,
        batched=True,
        batch_size=_ROWS_AT_ONCE,
        features=features,
        remove_columns=list(remove_columns),
        fn_kwargs=options,
    )


def _column_of(there: list[str], wanted: str | None) -> str:
    """The column that is named, or that SAELens would take, or the only one."""
    known = next((each for each in _COLUMNS if each in there), None)
    column = wanted or known or (there[0] if len(there) == 1 else None)
    if column not in there:
        should = f"be one of {', '.join(there)}, which the text has"
        raise UserError("column", should, column or f"none of {', '.join(_COLUMNS)}")
    return column


def _check_mask(rows: IterableDataset, named: str) -> None:
    """Raise for padded rows: the model would read what stands in for tokens as tokens."""
    for row in islice(rows, FIRST_ROWS):
        if not all(row.get("attention_mask") or ()):
            raise UserError(
                "The text should have rows of tokens without padding. Found zeros in the "
                f"column attention_mask of {named}."
            )


def _in_pieces(batch: dict[str, list[Any]], column: str) -> dict[str, list[str]]:
    """The documents, long ones in pieces: tokenizing costs what is used."""
    pieces: list[str] = []
    for words in batch[column]:
        if not isinstance(words, str | None):
            raise _neither(column, words)
        document = words or ""
        starts = range(0, len(document), _PIECE)
        pieces += filter(str.strip, (document[start : start + _PIECE] for start in starts))
    return {"text": pieces}


def _as_tokens(batch: dict[str, list[Any]], column: str) -> dict[str, list[Any]]:
    filled = list(filter(None, batch[column]))
    for tokens in filled:
        is_row = isinstance(tokens, list) and all(type(each) is int for each in tokens)
        if not is_row or min(tokens) < 0:
            raise _neither(column, tokens)
    return {"tokens": filled}


def _neither(column: str, value: object) -> UserError:
    found = shortened(repr(value), 80)
    return UserError(
        f"The column {column} should have words alone, or rows of tokens alone. Found {found}."
    )


def rows_for(text: IterableDataset, model: str | None, context_size: int) -> IterableDataset:
    """A text as a model reads it. Rows of tokens that do not fill the context are left out."""
    rows = _as_read_by(model, text)
    if not _is_of_tokens(rows):
        return text  # of words, of which SAELens makes the rows
    n_looked_at = FIRST_ROWS if rows is text else 1  # those that we make of words are alike
    lengths = (len(row["tokens"]) for row in islice(rows, n_looked_at))
    if (longest := max(lengths, default=0)) < context_size:
        raise UserError(
            f"The text should fill rows of {context_size:,} tokens, the `context_size`. Found "
            f"{longest:,} in the longest of the first rows."
        )
    return _in_batches(rows, _without_short_ones, _TOKENS, least=context_size)


def _without_short_ones(batch: dict[str, list[Any]], least: int) -> dict[str, list[Any]]:
    return {"tokens": [row for row in batch["tokens"] if len(row) >= least]}


def _is_of_tokens(rows: IterableDataset) -> bool:
    return rows.column_names == ["tokens"]


def _as_read_by(model: str | None, text: IterableDataset) -> IterableDataset:
    """MiniLM reads rows of its own, between special tokens; SAELens makes those of others."""
    is_minilm = ModelName(model or "").hub_id == MINILM.hub_id
    if not is_minilm or _is_of_tokens(text):
        return text
    return IterableDataset.from_generator(
        _rows_of_minilm, gen_kwargs={"text": text}, features=_TOKENS
    )


def _rows_of_minilm(text: IterableDataset) -> Iterator[dict[str, list[int]]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ModelName(MINILM.hub_id).place())
    for row in token_rows((row["text"] for row in text), tokenizer):
        yield {"tokens": row}


def check_tokenizer(rows: IterableDataset, source: TextSource, tokenizer: Any) -> None:
    """Raise for rows of tokens of a dataset on the Hub that names another tokenizer."""
    if tokenizer is not None and source.hub_id is not None and _is_of_tokens(rows):
        with suppress(LocalEntryNotFoundError):
            validate_pretokenized_dataset_tokenizer(source.hub_id, tokenizer)
