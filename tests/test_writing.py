"""Files that are there whole or not at all."""

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import save_file
from torch import OutOfMemoryError

from sae_lens_c2r._support.files import fill_once, sync, write_folder, write_json, write_text


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_a_file_system_that_cannot_say_when_is_written_to(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(number, "no")))
    with nullcontext() if number == errno.EINVAL else pytest.raises(OSError, match="no"):
        sync(tmp_path)


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "one")
    write_text(path, "zwei ü")
    assert path.read_text(encoding="utf-8") == "zwei ü"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_s_files_are_readable_by_whom_the_umask_says(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    with write_folder(tmp_path / "sae", beside=tmp_path) as folder:
        save_file({"W": torch.ones(2)}, folder / "weights.safetensors")
    assert stat.S_IMODE((tmp_path / "sae" / "weights.safetensors").stat().st_mode) == 0o640


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), OutOfMemoryError("GPU")])
def test_a_folder_that_fails_to_be_filled_is_not_there(
    error: BaseException, tmp_path: Path
) -> None:
    """What is not of the disk is told as what it is, and the next one who asks tries again."""
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


def test_a_folder_may_get_its_name_on_another_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a link leads to it: it is there whole, and nothing else is left."""
    replace, elsewhere = os.replace, tmp_path / "elsewhere"

    def of_one_disk(old: Path, new: Path) -> None:
        if Path(old).is_relative_to(elsewhere) != Path(new).is_relative_to(elsewhere):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replace(old, new)

    monkeypatch.setattr(os, "replace", of_one_disk)
    with write_folder(elsewhere / "sae", beside=tmp_path / "work") as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "a.txt").write_text("one")
    assert (elsewhere / "sae" / "inner" / "a.txt").read_text() == "one"
    assert [path.name for path in elsewhere.iterdir()] == ["sae"]
    assert list((tmp_path / "work").iterdir()) == []


def test_numbers_that_json_has_not_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("one")
    (tmp_path / "link").symlink_to("target")
    write_text(tmp_path / "link", "two")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "two"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor() as reader:
        read = reader.submit(path.read_text)
        write_text(path, "through")
    assert read.result() == "through"
    assert stat.S_ISFIFO(path.stat().st_mode)
