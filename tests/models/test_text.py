"""The reader of text: whatever people have, read as it is, or refused for its true cause."""

import bz2
import gzip
import json
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from zipfile import ZipFile

import pytest
from datasets import Dataset, DatasetDict
from huggingface_hub.errors import LocalEntryNotFoundError
from packaging.version import Version
from PIL import Image

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.models import corpus, text_files
from sae_lens_c2r.models import text as reader
from sae_lens_c2r.models.offline import MINILM
from sae_lens_c2r.models.text import Text, read_text
from sae_lens_c2r.models.text_source import TextSource
from tests.command import run

WORDS = ["One line,\nand another: ü.", "a\u2028b\x85c, 'two'"]
ROWS = [{"id": number, "text": words} for number, words in enumerate(WORDS)]
TOKENS = [[1, 2, 3, 4], [5, 6, 7, 8]]
MARK = b"\xef\xbb\xbf"
IS_NEW = Version(version("datasets")) >= Version("5")


def read(path: object, **part: str) -> list[dict[str, Any]]:
    return list(read_text(TextSource(str(path), **part)))


def as_table(separator: str, column: str = "text") -> str:
    lines = [f'{row["id"]}{separator}"{row["text"]}"' for row in ROWS]
    return "\n".join([f"id{separator}{column}", *lines, ""])


WRITTEN: dict[str, str] = {
    "jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
    "json": json.dumps(ROWS, ensure_ascii=False),
    "csv": as_table(","),
    "tsv": as_table("\t"),
    "txt": WORDS[0],
    "md": WORDS[0],
    "log": WORDS[0],
}


@pytest.mark.parametrize("zipped", ["", ".gz", ".zip"])
@pytest.mark.parametrize("mark", [b"", MARK])
@pytest.mark.parametrize("ending", [*WRITTEN, "CSV"])
def test_a_file_is_read_by_its_ending(
    ending: str, mark: bytes, zipped: str, tmp_path: Path
) -> None:
    content = mark + WRITTEN[ending.lower()].encode()
    path = tmp_path / f"my.own text.{ending}{zipped}"
    if zipped == ".zip":
        with ZipFile(path, "w") as file:
            file.writestr(path.stem, content)
    else:
        path.write_bytes(gzip.compress(content) if zipped else content)
    expected = WORDS[:1] if WRITTEN[ending.lower()] == WORDS[0] else WORDS
    assert read(path) == [{"text": words} for words in expected]


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "txt", "md"])
def test_files_of_a_folder_may_begin_with_a_mark(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"a.{ending}").write_bytes(MARK + WRITTEN[ending].encode())
    assert read(tmp_path)[0]["text"].startswith("One line,")
    if ending == "csv":  # as Excel writes Unicode
        (tmp_path / "a.csv").write_text(WRITTEN[ending], encoding="utf-16")
        assert read(tmp_path) == [{"text": words} for words in WORDS]


CELLS = ["One, two; three", "NA", "null", "007", "true"]
TABLES = [
    *(
        "".join([f"id{mark}text\n", *(f'1{mark}"{cell}"\n' for cell in CELLS)])
        for mark in ",;\t|"
    ),
    "".join(["text\n", *(f'"{cell}"\n' for cell in CELLS)]),
]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_table_is_read_as_it_is_written(
    table: str, encoding: str, zipped: bool, tmp_path: Path
) -> None:
    """By whatever separates the columns; and what pandas would take for no word is one."""
    path = tmp_path / f"a.csv{'.gz' if zipped else ''}"
    content = table.encode(encoding)
    path.write_bytes(gzip.compress(content) if zipped else content)
    if zipped and encoding == "utf-16":
        with pytest.raises(UserError, match="UTF-8"):
            read(path)
    else:
        assert read(path) == [{"text": cell} for cell in CELLS]
    if encoding == "utf-8":
        assert read(tmp_path) == read(path)


def binary(dataset: Dataset, folder: Path) -> list[Path]:
    """Parquet and both forms of Arrow."""
    dataset.to_parquet(folder / "a.parquet")
    dataset.save_to_disk(folder / "saved")
    [shard] = (folder / "saved").glob("*.arrow")
    return [folder / "a.parquet", shard]


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (Dataset.from_list(ROWS), [{"text": words} for words in WORDS]),
        (Dataset.from_dict({"input_ids": TOKENS}), [{"tokens": row} for row in TOKENS]),
        (
            Dataset.from_dict({"tokens": TOKENS, "text": WORDS}),
            [{"tokens": row} for row in TOKENS],
        ),
    ],
)
def test_tables_are_read_in_any_form_and_folder(
    dataset: Dataset, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in binary(dataset, tmp_path):
        zipped = path.with_name(f"{path.name}.gz")
        zipped.write_bytes(gzip.compress(path.read_bytes()))
        assert read(path) == expected
        if not IS_NEW:  # from version 5, `datasets` unpacks text alone
            assert read(zipped) == expected
        zipped.unlink()
    dataset.with_format("torch").save_to_disk(tmp_path / "as SAELens saves")
    of_splits = {"validation": dataset, "test": dataset.select([1])}
    DatasetDict(of_splits).save_to_disk(tmp_path / "splits")
    for folder, name in (("alone", "test.parquet"), ("deep", "data/train-00000.parquet")):
        (tmp_path / folder / name).parent.mkdir(parents=True)
        dataset.to_parquet(tmp_path / folder / name)
    monkeypatch.chdir(tmp_path)
    for folder in ("saved", "as SAELens saves", "alone", "deep", tmp_path / "deep"):
        assert read(folder) == expected
    (tmp_path / "link").symlink_to(tmp_path / "alone")
    assert read("link") == read("alone", split="test") == expected
    assert read("splits", split="test") == expected[1:]
    for part in ("split", "subset"):
        with pytest.raises(UserError, match=f"^`{part}` should not be given"):
            read("saved", **{part: "test"})


def test_part_of_a_text_can_be_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"text": "of text", "body": "of body"}))
    assert read(path, column="body") == [{"text": "of body"}]
    path.write_text(json.dumps({"text": "of\0a PDF"}))
    assert read(path) == [{"text": "of\0a PDF"}]
    path.write_text(json.dumps({"review": "of the only column"}))
    assert read(path) == [{"text": "of the only column"}]
    assert caplog.messages == ["The text is read from its only column, review."]


def lines_of(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


WRONG: dict[str, tuple[str, bytes | None, dict[str, str], list[str]]] = {
    "a blank file": ("a.txt", b" \n", {}, ["a.txt"]),
    "no row": ("a.jsonl", b"", {}, ["a.jsonl"]),
    "only null": ("a.jsonl", lines_of({"text": None}), {}, ["a.jsonl"]),
    "binary": ("a.txt", b"\xff\xfe\x00", {}, ["a.txt", "UTF-8"]),
    "latin-1": ("a.csv", "text\nü\n".encode("latin-1"), {}, ["a.csv", "UTF-8"]),
    "another column": ("a.csv", b"id,content\n1,x\n", {}, ["`column`", "id, content"]),
    "no such column": ("a.csv", b"id,text\n1,x\n", {"column": "x"}, ["`column`", "id, text"]),
    "a ragged table": ("a.csv", b"text\na\nb,c\n", {}, ["a.csv", "line 3"]),
    "more cells than the header": ("a.csv", b"id,text\n1,a, b\n", {}, ["a.csv", "line 2"]),
    "tokens in a table": ("a.csv", b'tokens\n"[1, 2]"\n', {}, ["a.csv", "lists of numbers"]),
    "UTF-32": ("a.txt", "words".encode("utf-32"), {}, ["a.txt", "UTF-8"]),
    "no mark of UTF-16": ("a.txt", "words".encode("utf-16-le"), {}, ["a.txt", "UTF-8"]),
    "an office's document": ("a.docx", b"PK\3\4", {}, ["a.docx", "archive"]),
    "cut": ("a.jsonl.gz", gzip.compress(lines_of(*ROWS))[:-9], {}, ["a.jsonl.gz"]),
    "never compressed": ("a.jsonl.gz", lines_of(*ROWS), {}, ["a.jsonl.gz"]),
    "two kinds, compressed": (
        "a.jsonl.bz2",
        bz2.compress(lines_of({"text": "a"}, {"text": 5})),
        {},
        ["row 2 of" if IS_NEW else "line 2 of", "a.jsonl.bz2"],
    ),
    "a number": ("a.jsonl", lines_of({"text": 1}), {}, ["row 1", "a.jsonl"]),
    "a mapping": ("a.json", b'{"data": [{"text": "a"}]}', {}, ["row 1", "data"]),
    "no json": ("a.jsonl", lines_of({"text": "a"}) + b"{", {}, ["line 2 of", "a.jsonl"]),
    "two kinds": (
        "a.jsonl",
        lines_of({"text": "a"}, {"text": None}, {"text": 5}),
        {},
        ["row 3 of" if IS_NEW else "line 3 of", "a.jsonl"],
    ),
    "a token that is none": ("a.jsonl", lines_of({"tokens": [1, None]}), {}, ["row 1"]),
    "a negative token": ("a.jsonl", lines_of({"tokens": [1, -1]}), {}, ["row 1"]),
    "no parquet": ("a.parquet", b"PAR1 it is not", {}, ["a.parquet"]),
    "a split of a file": ("a.txt", b"words", {"split": "test"}, ["`split`", "a.txt"]),
    "a split of ours": ("enwik8", None, {"split": "test"}, ["`split`", "enwik8"]),
    "no part of ours": ("enwik8", None, {"split": "train[:"}, ["`split`", "train[90%:]"]),
    "a part of ours that is empty": ("enwik8", None, {"split": "train[:0]"}, ["no text in"]),
    "a subset of ours": ("enwik8", None, {"subset": "en"}, ["`subset`", "enwik8"]),
    "no file": ("none.txt", None, {}, ["none.txt", "no such file"]),
    "no compressed file": ("none.jsonl.zst", None, {}, ["none.jsonl.zst", "no such file"]),
    "a pattern": ("*.txt", None, {}, ["*.txt", "no such file"]),
    "no path": ("./text", None, {}, ["text"]),
    "no name": ("a/b/c", None, {}, ["a/b/c"]),
    "nothing": (" ", None, {}, ["Found nothing"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_read_is_refused_for_its_true_cause(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, content, part, told = WRONG[case]
    if content is not None:
        Path(name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        read(name, **part)
    text = str(caught.value)
    assert all(each in text for each in told)
    assert "Hub cannot be reached" not in text
    assert "\n" not in text
    assert len(text) < 400


def test_a_name_is_no_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a browser's second download; and the folder that one stands in has a name, too."""
    for name in ("notes[1].txt", "notes1.txt", "w?.txt", "wx.txt"):
        (tmp_path / name).write_text(name)
    for name in ("notes[1].txt", "w?.txt"):
        assert read(tmp_path / name) == [{"text": name}]
    for folder in ("alone", "all [1]", "a::b", "w*", "file://a"):
        for name in ("a.txt", "deep/b::c.txt", "deep/d[1].txt"):
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_text(name)
            assert read(tmp_path / folder / name) == [{"text": name}]
        monkeypatch.chdir(tmp_path / folder)
        found = sorted(row["text"] for row in read("."))
        assert found == ["a.txt", "deep/b::c.txt", "deep/d[1].txt"]


def test_files_that_are_not_read_are_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, content in (("a.jsonl", lines_of(*ROWS)), ("b.jsonl", lines_of(*ROWS))):
        (tmp_path / name).write_bytes(content)
    (tmp_path / ".step").mkdir()
    for name in ("notes.md", ".step/a.csv", ".b.csv"):
        (tmp_path / name).write_text("of no text")
    assert len(read(tmp_path)) == 4
    assert not caplog.messages
    (tmp_path / "notes.txt").write_text("words")
    (tmp_path / "table.csv").write_text("text\nwords\n")
    for _ in range(2):
        assert len(read(tmp_path)) == 4
    [line] = caplog.messages
    assert "read are files like a.jsonl, and not 2 of other kinds, like notes.txt" in line


CARD = "---\nconfigs:\n- config_name: default\n  data_files: {}\n  quoting: 3\n---\n"


def test_a_table_of_a_dataset_is_read_as_its_card_says(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(CARD.format("a.csv"))
    with pytest.raises(UserError, match=r"a\.csv"):
        read(tmp_path)
    (tmp_path / "a.csv").write_text('text\n"open\nNA\n')
    assert read(tmp_path) == [{"text": '"open'}, {"text": "NA"}]


def test_tables_in_an_archive_are_read(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "data.zip", "w") as file:
        for name in ("a.csv", "b.csv"):
            file.writestr(name, f"id,text\n1,NA\n2,of {name}\n")
    for place in (tmp_path, tmp_path / "data.zip"):
        words = [row["text"] for row in read(place)]
        assert sorted(words) == ["NA", "NA", "of a.csv", "of b.csv"]


def test_tables_beside_each_other_may_have_other_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\nhello\n")
    (tmp_path / "b.csv").write_text("id,text\n1,NA\n")
    assert read(tmp_path) == [{"text": "hello"}, {"text": "NA"}]


def test_tables_of_parquet_need_the_column_of_text_alone(tmp_path: Path) -> None:
    Dataset.from_list(ROWS).to_parquet(tmp_path / "a.parquet")
    later = [{"date": "today", "text": "later", "url": None}]
    Dataset.from_list(later).to_parquet(tmp_path / "b.parquet")
    expected = [*WORDS, "later"]
    assert [row["text"] for row in read(tmp_path)] == expected
    assert [row["text"] for row in read(tmp_path, column="text")] == expected


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("first", ["a", "c"])
def test_of_a_folder_the_tables_with_text_are_read(
    ending: str, first: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def write(name: str, *columns: str) -> None:
        path, cells = tmp_path / f"{name}.{ending}", [f"007 {column}" for column in columns]
        if ending == "parquet":
            Dataset.from_list([dict(zip(columns, cells, strict=True))]).to_parquet(path)
        else:
            content = "\n".join(";".join(each) for each in (columns, cells)).encode()
            path.write_bytes(gzip.compress(content) if ending == "csv.gz" else content)

    write("b", "id", "label")
    write(first, "id", "text")
    write("d", "x", "y", "z", "id", "text")
    assert read(tmp_path) == 2 * [{"text": "007 text"}]
    [line] = caplog.messages
    assert line.endswith(f"without rows or a column text: 1 table, such as b.{ending}.")
    write("test", "id", "text")  # another split
    for name in (first, "b", "d"):
        (tmp_path / f"{name}.{ending}").rename(tmp_path / f"train-{name}.{ending}")
    assert read(tmp_path, split="test") == [{"text": "007 text"}]
    assert read(tmp_path, split="train") == 2 * [{"text": "007 text"}]


@pytest.mark.parametrize("empty", ["a", "c"])
def test_empty_tables_in_a_folder_are_left_out(empty: str, tmp_path: Path) -> None:
    tables = {"a": ["1"], "b": ["2"], "c": ["3"]} | {empty: list[str]()}
    for folder in ("csv", "parquet"):
        (tmp_path / folder).mkdir()
    for name, words in tables.items():
        rows = Dataset.from_dict({"id": words, "text": words})
        rows.to_parquet(tmp_path / "parquet" / f"{name}.parquet")
        (tmp_path / "csv" / f"{name}.csv").write_text("text\n" + words[0] if words else "")
    expected = [{"text": words[0]} for words in tables.values() if words]
    assert read(tmp_path / "csv") == read(tmp_path / "parquet") == expected


def test_another_table_with_a_row_that_is_too_long_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,id,text\n1,2,fine\n")
    (tmp_path / "b.csv").write_text("id,text\n1,a, b\n")
    with pytest.raises(UserError, match=r"b\.csv should have no more cells .* saw 3\."):
        read(tmp_path)


def test_the_header_of_a_table_is_what_pandas_reads(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('\nid,"source\n(url)",text\n1,u,hello\n')
    (tmp_path / "b.csv").write_text('"source\n(url)",text\nu,bye\n')
    assert read(tmp_path) == [{"text": "hello"}, {"text": "bye"}]
    assert len(read(tmp_path, column="source\n(url)")) == 2


def test_a_headerless_table_is_read_as_its_card_says(tmp_path: Path) -> None:
    options = "data_files: '*.csv'\n  names: [id, text]\n"
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n- config_name: x\n  {options}---\n")
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"1,of {name}\n")
    assert read(tmp_path) == [{"text": "of a"}, {"text": "of b"}]


def test_a_text_of_ours_is_one_split_and_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = tuple(f"words {number}" for number in range(10))
    monkeypatch.setattr(corpus, "articles", lambda: documents)

    def part(split: str) -> tuple[str, ...]:
        return tuple(row["text"] for row in read_text(TextSource("enwik8", split)))

    assert part("train") == documents
    assert part("train[80%:]") == documents[8:]
    assert part("train[:2]+train[-1:]") == (*documents[:2], documents[-1])


def test_builders_get_no_trust_where_datasets_runs_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines_of(*ROWS))
    loaded = Mock(wraps=text_files.load_dataset_builder)
    monkeypatch.setattr(text_files, "load_dataset_builder", loaded)
    monkeypatch.setattr(text_files, "_TAKES_TRUST", False)  # as from version 4
    assert [row["text"] for row in read(tmp_path)] == WORDS
    assert "trust_remote_code" not in loaded.call_args.kwargs


def test_a_kind_of_datasets_that_reads_no_notes_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in (("a.md", b"words"), ("b.png", b"\x89PNG\0")):
        (tmp_path / name).write_bytes(content)

    class Harbor:  # as of version 5, for .md
        config = SimpleNamespace(data_files={"train": [str(tmp_path / "a.md")]})

    Harbor.__module__ = "datasets.packaged_modules.harbor.harbor"
    real = text_files.load_dataset_builder

    def load(place: str, **options: Any) -> Any:
        return Harbor() if place == str(tmp_path) else real(place, **options)

    monkeypatch.setattr(text_files, "load_dataset_builder", load)
    assert read(tmp_path) == [{"text": "words"}]


def test_files_of_no_known_kind_are_documents(tmp_path: Path) -> None:
    for name in ("a.md", "deep/b[1].rst", ".hidden.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"In {name}\nare two lines.")
    expected = [{"text": f"In {name}\nare two lines."} for name in ("a.md", "deep/b[1].rst")]
    assert read(tmp_path) == expected
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty"):
        read(tmp_path / "empty")


def test_a_folder_of_notes_and_pictures_is_one_of_notes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text(f"In {name}")
    Image.new("L", (1, 1)).save(tmp_path / "c.png")
    assert [row["text"] for row in read(tmp_path)] == ["In a.md", "In b.md"]
    assert "each of 2 files is a document. Not text: 1." in caplog.text
    for content in (b"caf\xe9", 5000 * b"a" + b" caf\xe9", "café".encode("utf-16")):
        (tmp_path / "b.md").write_bytes(content)
        with pytest.raises(UserError, match=r"Found in .*b\.md: .*can't decode"):
            read(tmp_path)
    (tmp_path / "b.md").unlink()
    (tmp_path / "words.jsonl").write_bytes(lines_of(*ROWS))
    assert len(read(tmp_path)) == 2
    rows = [{"file_name": "c.png", "text": "a caption"}]
    (tmp_path / "metadata.jsonl").write_bytes(lines_of(*rows))
    (tmp_path / "words.jsonl").unlink()
    assert [row["text"] for row in read(tmp_path)] == ["a caption"]


def test_a_line_is_blamed_where_it_is_though_another_file_is_no_utf_8(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").mkdir()
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    (tmp_path / "b.jsonl").write_bytes(lines_of({"text": "a"}) + b"{")
    (tmp_path / "c.jsonl").write_bytes(lines_of({"text": "a"}))
    with pytest.raises(UserError, match=r"line 2 of .*b\.jsonl"):
        read(tmp_path)


def test_notes_are_told_of_where_there_are_more_of_them_than_of_tables(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a.md", "x/a.md", "y/a.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("words")
    (tmp_path / "about.jsonl").write_bytes(lines_of(*ROWS))
    assert len(read(tmp_path)) == 2
    assert "read are files like about.jsonl, and not 3 of other kinds, like a.md" in caplog.text


def test_a_subset_is_asked_for_by_our_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(lines_of(*ROWS))
    subsets = "".join(f"- config_name: {each}\n  data_files: {each}.jsonl\n" for each in "ab")
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{subsets}---\n")
    for part in ({}, {"subset": "c"}):
        with pytest.raises(UserError, match=r"`subset` should be one that .*\['a', 'b'\]"):
            read(tmp_path, **part)
    assert len(read(tmp_path, subset="b")) == 2


def test_what_is_no_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("nowhere")
    monkeypatch.chdir(tmp_path)
    for name in ("pipe", "dangling"):
        with pytest.raises(UserError, match="read twice"):
            read(name)


def test_the_splits_that_are_there_are_named(tmp_path: Path) -> None:
    for name in ("validation", "test"):
        (tmp_path / f"{name}.jsonl").write_bytes(lines_of(*ROWS))
    for part in ({}, {"split": "train"}):
        with pytest.raises(UserError, match="`split` should be one of validation, test"):
            read(tmp_path, **part)
    (tmp_path / "bad").mkdir()
    for name, content in (("a", lines_of(*ROWS)), ("b", b'{"text": ')):
        (tmp_path / "bad" / f"{name}.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=r"line 1 of .*b\.jsonl"):
        read(tmp_path / "bad")


@pytest.mark.parametrize("splits", [("test",), ("train", "test")], ids=len)
def test_of_the_hub_the_only_split_is_read(
    splits: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = Mock()
    builder = Mock(info=Mock(splits=dict.fromkeys(splits)))
    monkeypatch.setattr(text_files, "load_dataset", loaded)
    monkeypatch.setattr(text_files, "load_dataset_builder", Mock(return_value=builder))
    for asked, expected in ((None, splits[0]), ("train[:10%]", "train[:10%]")):
        text_files.rows_of_dataset(TextSource("org/name", asked), streaming=False)
        assert loaded.call_args.kwargs["split"] == expected


def test_rows_without_text_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [{"text": "one"}, {"text": None}, {"text": " "}, {"id": 3}, {"text": "two"}]
    path.write_bytes(lines_of(*rows))
    text = read_text(TextSource(str(path)))
    for _ in range(2):
        assert list(text) == [{"text": "one"}, {"text": "two"}]
        assert "3 of 5 rows" in text.left_out
    rows_of_tokens = Text([{"tokens": row} for row in ([1, 2], [], [3], [4, 5])], "mine")
    found = rows_of_tokens.for_model(None, 2)
    assert list(found) == [{"tokens": [1, 2]}, {"tokens": [4, 5]}]
    assert "2 of 4 rows" in found.left_out
    short_first = Text([{"tokens": row} for row in ([1], [1, 2, 3], [4, 5])], "mine")
    most = short_first.for_model(None, 8)
    assert [row["tokens"] for row in most] == [[1, 2, 3], [4, 5]]
    with pytest.raises(UserError, match="3 in the longest"):
        most.check_context(4)
    most.check_context(3)
    assert [row["tokens"] for row in most] == [[1, 2, 3]]


def test_tokens_of_the_hub_s_cache_are_read_without_a_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacking = Mock(side_effect=LocalEntryNotFoundError("No sae_lens.json"))
    monkeypatch.setattr(reader, "validate_pretokenized_dataset_tokenizer", lacking)
    text = Text([{"tokens": [0, 1]}], "mine", hub_id="me/tokens")
    text.check_tokenizer(SimpleNamespace(get_vocab=lambda: {"a": 0, "b": 1}))
    lacking.assert_called_once()


def test_tokens_of_another_model_are_refused_where_they_are_read() -> None:
    text = Text([{"tokens": row} for row in (*[[0, 9]] * 200, [10, 0])], "mine")
    text.check_tokenizer(SimpleNamespace(get_vocab=lambda: {"a": 0, "z": 9}))
    rows = iter(text.for_model(None, 2))
    assert next(rows) == {"tokens": [0, 9]}
    with pytest.raises(UserError, match=r"below 10, .* Found 10 in .*row 201 of mine"):
        list(rows)


@pytest.mark.parametrize("between", ["\n", " ", "-"])
def test_of_a_long_text_no_more_is_tokenized_than_is_used(between: str, tmp_path: Path) -> None:
    path, words = tmp_path / "long.txt", [f"word{i}" for i in range(200_000)]
    path.write_text(between.join(words))
    pieces = [row["text"] for row in read(path)]
    assert len(pieces) > 4
    assert max(map(len, pieces)) <= reader._PIECE
    assert "".join(pieces) == path.read_text()


def test_minilm_reads_rows_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    text = Text([{"text": words} for words in WORDS], "mine")
    monkeypatch.setattr(reader, "_tokenize_for_minilm", lambda words: ([7] for _ in words))
    for model in (MINILM.hub_id, f"/venv/{MINILM.package}/model"):
        assert list(text.for_model(model, 128)) == [{"tokens": [7]}] * 2
    assert list(text) == list(text.for_model("gpt2", 128)), "for another model"


SOURCES: dict[str, Callable[[Path], object]] = {
    "corpus.jsonl": lambda path: path.write_bytes(lines_of({"text": "word " * 200})),
    "corpus.txt": lambda path: path.write_text("word " * 200),
    "my rows": lambda path: Dataset.from_dict({"input_ids": [[1] * 128]}).save_to_disk(path),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("absolute", [False, True])
def test_a_dry_run_takes_what_can_be_read_and_tells_of_the_rest(
    name: str,
    absolute: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / name if absolute else Path(name)
    command = ["train", "minilm-layer-3", "--dry-run", f"--set=language_model.dataset={place}"]
    assert run(*command) != 0, "it is not there yet"
    SOURCES[name](place)
    capsys.readouterr()
    assert run(*command) == 0, capsys.readouterr().err
    assert str(place) in capsys.readouterr().out.replace("\n", "")
    assert run(*command, "--set=language_model.column=other") != 0
    assert "`column` should" in capsys.readouterr().err
    assert not (tmp_path / "saes").exists()


def test_sae_lens_reads_a_text_as_it_reads_a_dataset() -> None:
    """The rows of tokens that its store makes, of words and of tokens."""
    from tests.language_model import rows_of_tokens, texts
    from tests.training.test_stream import make_store

    for dataset in (texts(), rows_of_tokens()):
        both = dataset, Text(dataset, "mine")
        stores = (make_store(each, prepend_bos=True) for each in both)
        theirs, ours = (list(store._iterate_tokenized_sequences()) for store in stores)
        assert len(theirs) > 5
        assert all(map(lambda a, b: a.tolist() == b.tolist(), theirs, ours))
