"""Files that are there whole or not at all."""

import errno
import multiprocessing
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import save_file

from sae_lens_c2r._support.files import fill_once, sync, write_folder, write_json, write_text


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "one")
    write_text(path, "zwei ü")
    assert path.read_text(encoding="utf-8") == "zwei ü"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left")])
def test_a_folder_that_fails_to_be_filled_is_not_there(
    error: BaseException, tmp_path: Path
) -> None:
    """The next one who asks tries again."""
    folder = tmp_path / "cache" / "folder"

    def fail(to: Path) -> None:
        (to / "half").write_text("half")
        raise error

    with pytest.raises(type(error)) as raised:
        fill_once(folder, fail)
    assert raised.value is error
    assert [path.name for path in folder.parent.iterdir()] == ["folder.lock"]
    fill_once(folder, lambda to: (to / "whole").write_text("whole"))
    fill_once(folder, fail)
    assert [path.name for path in folder.iterdir()] == ["whole"]


def test_what_fails_leaves_what_was_there_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "one")
    monkeypatch.setattr(os, "replace", Mock(side_effect=OSError("The disk is full.")))
    with pytest.raises(OSError, match="full"):
        write_text(path, "two")
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_s_files_are_readable_by_whom_the_umask_says(tmp_path: Path) -> None:
    """And by nobody else."""
    before = os.umask(0o027)
    try:
        with write_folder(tmp_path / "sae", beside=tmp_path) as folder:
            save_file({"W": torch.ones(2)}, folder / "weights.safetensors")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "sae" / "weights.safetensors").stat().st_mode) == 0o640


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """Such as /dev/null, or a link, whose target is written."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("target")
    with ThreadPoolExecutor() as reader:
        read = reader.submit((tmp_path / "pipe").read_text)
        for name in ("pipe", "link"):
            write_text(tmp_path / name, "words")
    assert read.result() == (tmp_path / "target").read_text() == "words"
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize(("number", "fails"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_what_did_not_come_to_the_disk_is_not_taken_for_written(
    number: int, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems cannot say; others say that it did not."""
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(number, "no")))
    try:
        sync(tmp_path)
    except OSError:
        assert fails
    else:
        assert not fails


def test_numbers_that_json_has_not_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_processes_that_write_one_file_do_not_mix_what_they_write(tmp_path: Path) -> None:
    """Nor does one remove what another one has begun."""
    path, whole = tmp_path / "a.txt", {str(i) * 300_000 for i in range(4)}
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_often, args=(path, text)) for text in whole]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert not path.exists() or path.read_text() in whole
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert list(tmp_path.iterdir()) == [path]


def _write_often(path: Path, text: str) -> None:
    for _ in range(50):
        write_text(path, text)
