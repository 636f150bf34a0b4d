"""Files that are there whole or not at all."""

import os
import stat
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import save_file

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import fill_once, write_folder, write_text


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
    write_text(path, "zero")
    write_text(path, "one ü")
    monkeypatch.setattr(os, "replace", Mock(side_effect=OSError("The disk is full.")))
    with pytest.raises(OSError, match="full"):
        write_text(path, "two")
    assert path.read_text(encoding="utf-8") == "one ü"
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


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """Such as /dev/null; a link stays one, and its target is written."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="should be a file"):
        write_text(tmp_path / "pipe", "words")
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link").symlink_to("target")
    write_text(tmp_path / "link", "words")
    assert (tmp_path / "target").read_text() == "words"
    assert (tmp_path / "link").is_symlink()


def test_two_that_write_one_file_do_not_share_what_they_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, replace = tmp_path / "a.txt", os.replace

    def after_another(part: Path, final: Path) -> None:
        monkeypatch.setattr(os, "replace", replace)
        write_text(path, "two")
        replace(part, final)

    monkeypatch.setattr(os, "replace", after_another)
    write_text(path, "one")
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]
