"""The reader of text: what it reads, which rows it leaves out, and what it refuses."""

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from zipfile import ZipFile

import pytest
from datasets import Dataset, DatasetDict, IterableDataset
from huggingface_hub.errors import LocalEntryNotFoundError

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.models import offline
from sae_lens_c2r.models import text as reader
from sae_lens_c2r.models.offline import MINILM
from sae_lens_c2r.models.text import check_tokenizer, one_column, read_text, rows_for
from sae_lens_c2r.models.text_source import OFFLINE_DATASET, TextSource
from tests.command import run

WORDS = ["One line,\nand another: ü.", "a\u2028b\x85c, 'two'"]
ROWS = [{"id": number, "text": words} for number, words in enumerate(WORDS)]
TOKENS = [[1, 2, 3, 4], [5, 6, 7, 8]]
OTHER_TOKENIZER = SimpleNamespace(get_vocab=lambda: {"a": 0, "z": 9})


def read(path: object, **part: str) -> list[dict[str, Any]]:
    return list(read_text(TextSource(str(path), **part)))


def of_tokens(*rows: list[int]) -> Any:
    return one_column(Dataset.from_dict({"tokens": rows}))


def lines_of(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_table(separator: str) -> str:
    return f"id{separator}text\n" + "".join(
        f'{row["id"]}{separator}"{row["text"]}"\n' for row in ROWS
    )


WRITTEN: dict[str, str] = {
    "jsonl": lines_of(*ROWS).decode(),
    "json": json.dumps(ROWS, ensure_ascii=False),
    "csv": as_table(","),
    "CSV": as_table(","),
    "tsv": as_table("\t"),
    "txt": WORDS[0],
    "md": WORDS[0],
}


@pytest.mark.parametrize("zipped", ["", ".gz", ".zip"])
@pytest.mark.parametrize("ending", WRITTEN)
def test_a_file_is_read_by_its_ending(ending: str, zipped: str, tmp_path: Path) -> None:
    content = WRITTEN[ending].encode()
    path = tmp_path / f"my.own text.{ending}{zipped}"
    if zipped == ".zip":
        with ZipFile(path, "w") as file:
            file.writestr(path.stem, content)
    else:
        path.write_bytes(gzip.compress(content) if zipped else content)
    expected = WORDS[:1] if WRITTEN[ending] == WORDS[0] else WORDS
    assert read(path) == [{"text": words} for words in expected]


def test_a_name_is_no_pattern(tmp_path: Path) -> None:
    """Such as that of a browser's second download."""
    for name in ("notes[1].txt", "notes1.txt"):
        (tmp_path / name).write_text(name)
    assert read(tmp_path / "notes[1].txt") == [{"text": "notes[1].txt"}]
    for folder, other in (("all [1]", "all 1"), ("w*", "wx")):  # which `datasets` would read
        for name in (folder, other):
            (tmp_path / name).mkdir()
            (tmp_path / name / "a.txt").write_text(name)
        with pytest.raises(UserError, match="takes for a pattern"):
            read(tmp_path / folder)
        assert read(tmp_path / folder / "a.txt") == [{"text": folder}]


@pytest.mark.parametrize("columns", [{"text": WORDS}, {"text": WORDS, "tokens": TOKENS}])
def test_folders_are_read_as_datasets_reads_them(
    columns: dict[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, name = Dataset.from_dict(columns), list(columns)[-1]
    expected = [{name: each} for each in columns[name]]
    monkeypatch.chdir(tmp_path)
    dataset.to_parquet("a.parquet")
    dataset.save_to_disk("saved")
    dataset.with_format("torch").save_to_disk("as SAELens saves")
    DatasetDict({"validation": dataset, "test": dataset.select([1])}).save_to_disk("splits")
    for path in ("text/test.parquet", "deep/data/train-00000.parquet"):
        Path(path).parent.mkdir(parents=True)
        dataset.to_parquet(path)
    for place in ("a.parquet", "saved", "as SAELens saves", "text", "deep", tmp_path / "deep"):
        assert read(place) == expected
    assert read("text", split="test") == expected
    assert read("splits", split="test") == expected[1:]


def test_a_column_can_be_named_and_the_only_one_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(lines_of({"text": "of text", "body": "of body"}))
    assert read(path, column="body") == [{"text": "of body"}]
    path.write_bytes(lines_of({"review": "of the only column"}))
    assert read(path) == [{"text": "of the only column"}]


@pytest.mark.parametrize("zipped", [False, True])
def test_cells_of_a_table_are_words(zipped: bool, tmp_path: Path) -> None:
    """What pandas would take for a number, or for nothing, is a word."""
    cells = ["One, two; three", "NA", "null", "007", "true"]
    table = "".join(["id,text\n", *(f'1,"{cell}"\n' for cell in cells)]).encode()
    path = tmp_path / ("a.csv.gz" if zipped else "a.csv")
    path.write_bytes(gzip.compress(table) if zipped else table)
    assert read(path) == [{"text": cell} for cell in cells]


PADDED = ([0, 0, 1, 1], [1, 1, 0, 0])
WRONG: dict[str, tuple[str, bytes | None, dict[str, str], str]] = {
    "a blank file": ("a.txt", b" \n", {}, "none in a.txt"),
    "only null": ("a.jsonl", lines_of({"text": None}), {}, "none in a.jsonl"),
    "another column": ("a.csv", b"id,content\n1,x\n", {}, "`column` .* id, content"),
    "no such column": ("a.csv", b"id,text\n1,x\n", {"column": "x"}, "`column` .* id, text"),
    "a ragged table": ("a.csv", b"text\na\nb,c\n", {}, "line 3"),
    "more cells than the header": ("a.csv", b"id,text\n1,a, b\n", {}, "line 2"),
    "tokens in a table": ("a.csv", b'tokens\n"[1, 2]"\n', {}, "Found words"),
    "a number": ("a.jsonl", lines_of({"text": 1}), {}, "Found 1"),
    "a mapping": ("a.jsonl", lines_of({"text": {"a": "b"}}), {}, "Found {'a'"),
    "no token": ("a.jsonl", lines_of({"tokens": [1, None]}), {}, "Found .1, None"),
    "a negative token": ("a.jsonl", lines_of({"tokens": [1, -1]}), {}, "Found .1, -1"),
    "a fraction": ("a.jsonl", lines_of({"tokens": [1.5]}), {}, r"Found .1\.5"),
    "a subset of a file": ("a.txt", b"words", {"subset": "x"}, "`subset` .* a.txt"),
    "a subset of ours": (OFFLINE_DATASET, None, {"subset": "x"}, "`subset`"),
    **{
        f"padded rows, {mask}": (
            "a.jsonl",
            lines_of(*({"tokens": [1] * 4, "attention_mask": m} for m in ([1] * 4, mask))),
            {},
            "without padding",
        )
        for mask in PADDED
    },
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_text_is_refused(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(offline, "documents", lambda: ("words",))
    name, content, part, told = WRONG[case]
    if content is not None:
        Path(name).write_bytes(content)
    with pytest.raises((ValueError, OSError), match=told):
        read(name, **part)


@pytest.mark.parametrize("values", [["a", 5], ["a", [5]], [[5], "a"]])
def test_words_and_tokens_are_not_mixed(values: list[Any]) -> None:
    rows = IterableDataset.from_generator(lambda: ({"text": each} for each in values))
    with pytest.raises(UserError, match="words alone, or rows of tokens alone"):
        list(one_column(rows))


def test_a_mask_without_zeros_is_no_padding() -> None:
    rows = {"input_ids": TOKENS, "attention_mask": [[1] * 4] * 2}
    assert list(one_column(Dataset.from_dict(rows))) == [{"tokens": row} for row in TOKENS]


def test_a_subset_is_read(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_bytes(lines_of({"text": name}))
    subsets = "".join(f"- config_name: {each}\n  data_files: {each}.jsonl\n" for each in "ab")
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{subsets}---\n")
    assert read(tmp_path, subset="b") == [{"text": "b"}]
    for part in ({}, {"subset": "c"}):
        with pytest.raises(ValueError, match=r"Config name is missing|'c' not found"):
            read(tmp_path, **part)


def test_the_built_in_text_has_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = tuple(f"words {number}" for number in range(10))
    monkeypatch.setattr(offline, "documents", lambda: documents)
    monkeypatch.chdir(tmp_path)
    Path(OFFLINE_DATASET).mkdir()  # somebody's SAEs
    for split, expected in (("train", documents), ("train[80%:]", documents[8:])):
        assert read(OFFLINE_DATASET, split=split) == [{"text": each} for each in expected]


def test_a_part_of_a_file_is_read_like_that_of_any_split(tmp_path: Path) -> None:
    path = tmp_path / "text.jsonl"
    path.write_text("".join(json.dumps({"text": f"words {n}"}) + "\n" for n in range(10)))
    assert read(path, split="train[80%:]") == [{"text": "words 8"}, {"text": "words 9"}]


@pytest.mark.parametrize("splits", [("test",), ("train", "test")], ids=len)
@pytest.mark.parametrize("streaming", [True, False])
def test_of_the_hub_one_split_is_read(
    splits: tuple[str, ...], streaming: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = Mock(return_value=Dataset.from_list(ROWS))
    builder = Mock(info=Mock(splits=dict.fromkeys(splits)))
    monkeypatch.setattr(reader, "load_dataset", loaded)
    monkeypatch.setattr(reader, "load_dataset_builder", Mock(return_value=builder))
    for takes_trust in (True, False):  # as before version 4 of datasets, and from then on
        monkeypatch.setattr(reader, "_TAKES_TRUST", takes_trust)
        for asked, expected in ((None, splits[0]), ("train[:10%]", "train[:10%]")):
            source = TextSource("org/name", asked, "en")
            assert len(list(read_text(source, streaming=streaming))) == 2
            assert loaded.call_args.args == ("org/name", "en")
            trust = {"trust_remote_code": False} if takes_trust else {}
            # datasets streams no part of a split.
            said = {"split": expected, "streaming": streaming and asked is None, **trust}
            assert loaded.call_args.kwargs == said


def test_rows_without_content_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [{"text": "one"}, {"text": None}, {"text": " "}, {"id": 3}, {"text": "two"}]
    path.write_bytes(lines_of(*rows))
    assert read(path) == [{"text": "one"}, {"text": "two"}]
    assert list(of_tokens([1, 2], [], [3])) == [{"tokens": [1, 2]}, {"tokens": [3]}]


def test_rows_of_tokens_fill_the_context() -> None:
    text = of_tokens([1], [1, 2, 3], [4, 5])
    assert [row["tokens"] for row in rows_for(text, None, 2)] == [[1, 2, 3], [4, 5]]
    assert [row["tokens"] for row in rows_for(text, None, 3)] == [[1, 2, 3]]
    with pytest.raises(UserError, match=r"fill rows of 4 tokens.* Found 3 in the longest"):
        rows_for(text, None, 4)
    words = one_column(Dataset.from_list(ROWS))
    assert rows_for(words, "gpt2", 8) is words


def test_a_dataset_that_names_another_tokenizer_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dataset on the Hub may name its tokenizer. Without a network nobody knows."""
    text = of_tokens([0, 9])
    asked = Mock(side_effect=LocalEntryNotFoundError("No sae_lens.json"))
    monkeypatch.setattr(reader, "validate_pretokenized_dataset_tokenizer", asked)
    check_tokenizer(text, TextSource("me/tokens"), OTHER_TOKENIZER)
    asked.assert_called_once_with("me/tokens", OTHER_TOKENIZER)
    asked.side_effect = ValueError("does not match")
    with pytest.raises(ValueError, match="does not match"):
        check_tokenizer(text, TextSource("me/tokens"), OTHER_TOKENIZER)


def test_of_a_long_text_no_more_is_tokenized_than_is_used(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("\n".join(f"word{i}" for i in range(200_000)))
    pieces = [row["text"] for row in read(path)]
    assert len(pieces) > 4
    assert max(map(len, pieces)) <= reader._PIECE
    assert "".join(pieces) == path.read_text()


def test_a_text_can_be_read_by_several_at_once_and_again(tmp_path: Path) -> None:
    """As SAELens's evaluations do while the training goes on."""
    for part in range(3):
        rows = ({"text": f"{part} {number} words"} for number in range(100))
        (tmp_path / f"{part}.jsonl").write_bytes(lines_of(*rows))
    words = read_text(TextSource(str(tmp_path)))
    assert [row["text"][:4] for row in words][99:101] == ["0 99", "1 0 "]
    for text in (words, rows_for(words, MINILM.hub_id, 128)):
        expected = list(text)
        first, second = iter(text), iter(text)
        begun = [next(first)]
        assert list(second) == expected
        assert begun + list(first) == expected
        assert list(copy.deepcopy(text)) == expected


def test_minilm_reads_rows_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    text = one_column(Dataset.from_list(ROWS))
    monkeypatch.setattr(reader, "token_rows", lambda words, _: ([7] * 128 for _ in words))
    for model in (MINILM.hub_id, f"/venv/{MINILM.package}/model"):
        assert list(rows_for(text, model, 128)) == [{"tokens": [7] * 128}] * 2
    tokens = of_tokens(*TOKENS)
    assert list(rows_for(tokens, MINILM.hub_id, 4)) == list(tokens)


@pytest.mark.parametrize("name", ["notes", "notes.txt", "a/b/c", OFFLINE_DATASET])
def test_a_text_is_on_the_disk_where_it_lies_there(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    is_ours = name == OFFLINE_DATASET
    assert (TextSource(name).path, TextSource(name).hub_id) == (None, None if is_ours else name)
    for place in (f"./{name}", str(tmp_path / name)):
        assert (TextSource(place).path, TextSource(place).hub_id) == (Path(place), None)
    Path(name).mkdir(parents=True)
    assert (TextSource(name).path, TextSource(name).hub_id) == (
        (None, None) if is_ours else (Path(name), None)
    )


SOURCES: dict[str, Callable[[Path], object]] = {
    "corpus.jsonl": lambda path: path.write_bytes(lines_of({"text": "word " * 200})),
    "my rows": lambda path: Dataset.from_dict({"input_ids": [[1] * 128]}).save_to_disk(path),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_dry_run_takes_what_can_be_read_and_tells_of_the_rest(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / name
    SOURCES[name](place)
    command = ["train", "minilm-layer-3", "--dry-run", f"--set=language_model.dataset={place}"]
    assert run(*command) == 0, capsys.readouterr().err
    assert str(place) in capsys.readouterr().out.replace("\n", "")
    assert run(*command, "--set=language_model.column=other") != 0
    assert "`column` should" in capsys.readouterr().err


def test_sae_lens_reads_a_text_as_it_reads_a_dataset() -> None:
    """The rows of tokens that its store makes, of words and of tokens."""
    from tests.language_model import rows_of_tokens, texts
    from tests.training.test_stream import make_store

    for dataset in (texts(), rows_of_tokens()):
        both = dataset, one_column(dataset)
        stores = (make_store(each, prepend_bos=True) for each in both)
        theirs, ours = (list(store._iterate_tokenized_sequences()) for store in stores)
        assert len(theirs) > 5
        assert all(map(lambda a, b: a.tolist() == b.tolist(), theirs, ours))
