"""A text that a command names is a file with text in it, or a dataset on the Hub."""

import os
from pathlib import Path

import pytest

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.inspection.text import read_text


def test_a_file_is_one_document(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("One line,\nand another: ü.\n", encoding="utf-8")
    dataset = read_text(str(path))
    assert dataset["text"] == ["One line,\nand another: ü.\n"]


def test_a_jsonl_file_has_a_document_in_every_line(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "one"}\n\n{"text": " "}\n{"id": 3, "text": "two"}\n')
    assert read_text(str(path))["text"] == ["one", "two"]


@pytest.mark.parametrize("name", ["org/dataset", "dataset", "org/data.set-2"])
def test_what_is_no_file_is_the_name_of_a_dataset(name: str) -> None:
    assert read_text(name) == name


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.txt", b" \n"),
        ("empty.jsonl", b""),
        ("blank.jsonl", b'{"text": " "}\n'),
        ("other.jsonl", b'{"content": 1}\n'),
        ("number.jsonl", b'{"text": 1}\n'),
        ("list.jsonl", b"[1]\n"),
        ("broken.jsonl", b"{"),
        ("binary.txt", b"\xff\xfe\x00"),
    ],
)
def test_a_file_without_text_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"`text` should (not be empty|be a text)") as caught:
        read_text(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["/no/such/file.txt", "no.txt", "./text", "a/b/c", "no.jsonl"])
def test_what_is_neither_a_file_nor_a_name_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="`text` should be a file or a dataset on the Hub"):
        read_text(name)


def test_a_folder_is_what_datasets_reads(tmp_path: Path) -> None:
    assert read_text(str(tmp_path)) == str(tmp_path)


@pytest.mark.parametrize("line", ['{"content": "x"}', '{"text": 1}', "[1]", "7", '"text"'])
def test_a_line_that_is_no_document_is_shown_with_what_one_is_like(
    line: str, tmp_path: Path
) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(f'{{"text": "one"}}\n{line}\n')
    with pytest.raises(UserError) as caught:
        read_text(str(path))
    assert str(caught.value) == (
        f"`text` should be a text, in UTF-8. {path}: a line should be like "
        f'{{"text": "words"}}. Found {line}'
    )


def test_a_long_line_is_not_shown_whole(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(f'{{"content": "{"x" * 10_000}"}}')
    with pytest.raises(UserError, match=r"Found \{.content.: .x+…$") as caught:
        read_text(str(path))
    assert len(str(caught.value)) < len(str(path)) + 200


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"should be a file that can be read twice\. .*pipe"):
        read_text(str(tmp_path / "pipe"))
